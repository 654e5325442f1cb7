package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// confirm asks question on standard error and goes on only if the answer is
// want, or y if want is empty. Without a terminal to ask on it refuses, unless
// --yes was given.
func (e *env) confirm(command, question, want string, protected bool) error {
	if e.yes {
		return nil
	}
	in, ok := e.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return usagef("%s needs a terminal to ask on, or --yes", command)
	}
	prompt := question + " [y/N] "
	if want != "" {
		prompt = question + "\nType " + want + " to go on: "
	}
	if protected && e.colored() {
		prompt = "\x1b[31m" + prompt + "\x1b[0m"
	}
	fmt.Fprint(e.stderr, prompt)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	answer = strings.TrimSpace(answer)
	if want == "" && strings.EqualFold(answer, "y") || want != "" && answer == want {
		return nil
	}
	return usagef("not confirmed, nothing was done")
}

// colored says whether standard error may carry colours.
func (e *env) colored() bool {
	switch e.color {
	case "always":
		return true
	case "never":
		return false
	}
	f, ok := e.stderr.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(f.Fd()))
}
