package main

import "syscall"

// childAttributes puts a server into a process group of its own, so that
// Ctrl-C reaches only us and we stop the servers in order, and ends it with
// us, also when we are killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
