package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// tail prints what concerns people of a server's log (all of it with -v) as it
// is written, from an offset on, until the cluster is stopped. The server writes
// to a file and not to a pipe, so that it never waits for us.
func (d *devCluster) tail(n *devNode, from int64) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for last := false; ; {
		from = d.copyLines(n, from)
		if last {
			return
		}
		select {
		case <-tick.C:
		case <-d.stopped:
			last = true
		}
	}
}

// copyLines prints the whole lines behind from and returns where to go on.
func (d *devCluster) copyLines(n *devNode, from int64) int64 {
	f, err := os.Open(n.logFile())
	if err != nil {
		return from // not there yet
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return from
	}
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return from // an unfinished line is read again
		}
		from += int64(len(line))
		if d.verbose || concernsPeople(line) {
			fmt.Fprintf(d.log, "%s  %s\n", n.name, strings.TrimRight(line, "\n"))
		}
	}
}

// concernsPeople says whether a line of a server's log is for the eyes of who
// tries the cluster out: our own warnings and errors, and what is no log line,
// such as a panic. The Raft library warns of everything that heals by itself.
func concernsPeople(line string) bool {
	if !strings.HasPrefix(line, "time=") {
		return true
	}
	bad := strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR")
	return bad && strings.Contains(line, " event=")
}

func logEnd(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return st.Size()
}

func lastLines(path string, count int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-count):], "\n  ")
}
