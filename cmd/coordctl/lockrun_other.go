//go:build unix && !linux

package main

import (
	"os/exec"
	"syscall"
)

func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// startTied starts cmd. There is no way here to end it when we are killed.
func startTied(cmd *exec.Cmd) (<-chan exit, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan exit, 1)
	go func() { exited <- exit{cmd.Wait()} }()
	return exited, nil
}

// isStopped cannot be told here without taking the exit status away.
func isStopped(int) bool { return false }
