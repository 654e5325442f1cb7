//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the one on standard input. Only the process group in its
// foreground may read from it. A nil terminal is none.
type terminal struct{ fd int }

// ownTerminal is the terminal that the command will read from, nil if standard
// input is none or another job has it.
func (e *env) ownTerminal() *terminal {
	f, ok := e.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	t := &terminal{int(f.Fd())}
	if !t.ours() {
		return nil
	}
	return t
}

// ours says whether this process is in the foreground.
func (t *terminal) ours() bool { return t.foreground() == unix.Getpgrp() }

// foreground is the process group there, 0 if that cannot be told.
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// give puts a process group into the foreground, if we are there.
func (t *terminal) give(group int) {
	if t.ours() {
		t.set(group)
	}
}

// takeBack puts us into the foreground again, if the process group is there: the
// shell may have taken the terminal for something else.
func (t *terminal) takeBack(group int) {
	if t != nil && t.foreground() == group {
		t.set(unix.Getpgrp())
	}
}

// set may be called from the background: the signal for that is switched off.
// It fails if the group has ended, and then changes nothing.
func (t *terminal) set(group int) {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
}
