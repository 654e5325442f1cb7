package main

import (
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttributes gives the command a process group of its own, so that it can
// be ended with all it started, and ends it with us.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// startTied starts cmd from a thread that lives until cmd has ended, as the
// signal at its parent's death is bound to that thread. The channel gets the
// result of its Wait.
func startTied(cmd *exec.Cmd) (<-chan exit, error) {
	started, exited := make(chan error), make(chan exit, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := cmd.Start()
		started <- err
		if err == nil {
			exited <- exit{cmd.Wait()}
		}
	}()
	return exited, <-started
}

// isStopped says, once, that a child was stopped. It does not take its exit
// status away from who waits for it.
func isStopped(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG, nil)
	return err == nil && info.Signo != 0
}
