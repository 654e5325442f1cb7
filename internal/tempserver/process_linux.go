package tempserver

import "syscall"

// attributes puts a server into a process group of its own, so that Ctrl-C on
// the terminal reaches only us and we stop it in order, and has the kernel send
// it the signal if we die first.
//
// The kernel counts the death of the thread that started the child as ours, so
// that thread must be kept (see Process.run).
func (a Account) attributes(signal syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: a.credential, Setpgid: true, Pdeathsig: signal}
}
