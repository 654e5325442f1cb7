//go:build unix && !linux

package demo

import "syscall"

func childAttributes(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
