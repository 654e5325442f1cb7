// Command testsum reads the events of `go test -json` from standard input and
// prints what a person wants to see of them: a line for each package, the output
// of what failed, the reason of each skip, and one closing line with the counts.
// It exits with 1 if anything failed, and with -strict also if a test was
// skipped, because a test that did not run has shown nothing.
//
// scripts/test.sh mixes events of its own into the stream, see the actions.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("testsum", flag.ContinueOnError)
	flags.SetOutput(stderr)
	strict := flags.Bool("strict", false, "a skipped test is a failure")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	s := newSummary(stdout)
	if err := read(stdin, s); err != nil {
		fmt.Fprintf(stderr, "testsum: %v\n", err)
		return 2
	}
	if !s.close(*strict) {
		return 1
	}
	return 0
}

// read hands each event to s. Lines that are no event (the go command has some)
// are passed on as they are.
func read(r io.Reader, s *summary) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				s.add(e)
			} else {
				s.plain(line)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
