package main

import "golang.org/x/sys/unix"

// isStopped says, once, that a child was stopped. It does not take its exit
// status away from who waits for it.
func isStopped(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG, nil)
	return err == nil && info.Signo != 0
}
