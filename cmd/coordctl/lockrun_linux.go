package main

import (
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// childAttributes gives the command a process group of its own, so that it can
// be ended with all it started, and ends it with us.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// startTied starts cmd from a thread that lives until cmd has ended, as the
// signal at its parent's death is bound to that thread. The channel gets the
// result of its Wait.
func startTied(cmd *exec.Cmd) (<-chan error, error) {
	started, exited := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := cmd.Start()
		started <- err
		if err == nil {
			exited <- cmd.Wait()
		}
	}()
	return exited, <-started
}

// takeTerminal makes the command's group the terminal's foreground, so that
// it may read from it, and returns what gives it back.
func takeTerminal(pgid int) func() {
	fd := int(os.Stdin.Fd())
	if !term.IsTerminal(fd) {
		return func() {}
	}
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, pgid) // fails if it has ended
	return func() {
		_ = unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, unix.Getpgrp())
		signal.Reset(syscall.SIGTTOU)
	}
}
