//go:build unix && !linux

package tempserver

import "syscall"

// attributes puts a server into a process group of its own, so that Ctrl-C on
// the terminal reaches only us and we stop it in order. Only Linux can end it
// when we die first.
func (a Account) attributes(syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: a.credential, Setpgid: true}
}
