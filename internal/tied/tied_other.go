//go:build unix && !linux

package tied

import "syscall"

func tie(*syscall.SysProcAttr, syscall.Signal) {}
