// Package child is for tests of programs as they are run: it builds them, and runs
// them as processes of their own that can be killed and started again.
package child

import (
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/coordd/coord/internal/tied"
)

// Process is a program that runs, has ended, or was not started yet, as the zero
// value. It can be started again and again, by one goroutine at a time; everything
// else may be called from any.
type Process struct {
	// OnEnd, if not nil, is called with each end of the process, before anybody
	// who waits for it goes on. It is set before the first start.
	OnEnd func(*os.ProcessState)

	mu   sync.Mutex // guards below
	cmd  *exec.Cmd  // nil: not started yet
	done chan struct{}
}

// Start runs cmd; what it prints is appended to the file log. start does it: nil
// for one that ends the process when the test's own ends, however that happens.
func (p *Process) Start(cmd *exec.Cmd, log string, start func(*exec.Cmd) error) error {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if start == nil {
		start = func(cmd *exec.Cmd) error { return tied.Start(cmd, syscall.SIGKILL) }
	}
	if err := start(cmd); err != nil {
		return err
	}
	done := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.done = cmd, done
	p.mu.Unlock()
	go func() {
		_ = cmd.Wait() // how it ended is in its state
		if p.OnEnd != nil {
			p.OnEnd(cmd.ProcessState)
		}
		close(done)
	}()
	return nil
}

// Cmd is the command that was started last, nil if none was.
func (p *Process) Cmd() *exec.Cmd {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd
}

// Pid is that of the process that was started last. One must have been.
func (p *Process) Pid() int { return p.Cmd().Process.Pid }

// never is the end of what was not started.
var never = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Done is closed when the process that was started last has ended, and if none was.
func (p *Process) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return never
	}
	return p.done
}

// Running says whether the process was started and has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.Done():
		return false
	default:
		return true
	}
}

// Ended waits for the end of the process, and says whether it came in time.
func (p *Process) Ended(limit time.Duration) bool {
	select {
	case <-p.Done():
		return true
	case <-time.After(limit):
		return !p.Running()
	}
}

// State is how the process has ended, nil if it runs or was not started.
func (p *Process) State() *os.ProcessState {
	if cmd := p.Cmd(); cmd != nil && !p.Running() {
		return cmd.ProcessState
	}
	return nil
}

// Signal sends sig; a process that has ended is left alone.
func (p *Process) Signal(sig syscall.Signal) {
	if p.Running() {
		_ = p.Cmd().Process.Signal(sig) // fails if it ends at this moment
	}
}

// Kill ends the process with kill -9, and waits for the end.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.Done()
}
