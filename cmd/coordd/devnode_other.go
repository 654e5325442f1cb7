//go:build unix && !linux

package main

import "syscall"

// childAttributes puts a server into a process group of its own. There is no
// way here to end it when we are killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
