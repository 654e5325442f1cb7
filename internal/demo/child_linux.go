package demo

import "syscall"

// childAttributes gives a child a process group of its own, so that Ctrl-C
// reaches it through us, and has the kernel send it a signal when we have ended,
// also by kill -9.
func childAttributes(whenWeEnd syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: whenWeEnd}
}
