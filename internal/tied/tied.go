// Package tied starts child processes that are ended by the kernel when this
// process ends, however that happens. Only Linux can do it; elsewhere children are
// started as usual.
//
// The signal that a child gets at its parent's death is bound to the thread that
// made it (prctl(2), PR_SET_PDEATHSIG), and the Go runtime ends threads as it
// likes. So all children are made by one thread that lives as long as the process.
package tied

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// requests are done by the one thread.
var requests = sync.OnceValue(func() chan<- func() {
	c := make(chan func())
	go serve(c)
	return c
})

func serve(c <-chan func()) {
	runtime.LockOSThread()
	for f := range c {
		f()
	}
}

// Start starts cmd in a process group of its own, so that Ctrl-C on a terminal
// reaches it only through us, and makes the kernel send it the signal when this
// process has ended. Other attributes that cmd has stay. It may be called from any
// goroutine; cmd.Wait is for the caller, as after cmd.Start.
func Start(cmd *exec.Cmd, whenWeEnd syscall.Signal) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
	tie(cmd.SysProcAttr, whenWeEnd)
	done := make(chan error)
	requests() <- func() { done <- cmd.Start() }
	return <-done
}
