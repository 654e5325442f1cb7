package pgtest

import "syscall"

// attributes puts a server into a process group of its own, so that Ctrl-C on
// the terminal reaches only us and we stop it in order, and has the kernel shut
// it down if we die first. SIGQUIT is PostgreSQL's immediate shutdown: unlike a
// SIGKILL it leaves no processes and no shared memory behind.
//
// The kernel counts the death of the thread that started the child as ours, so
// that thread must be kept (see process.run).
func (a account) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Credential: a.credential,
		Setpgid:    true,
		Pdeathsig:  syscall.SIGQUIT,
	}
}
