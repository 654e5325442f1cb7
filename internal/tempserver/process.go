package tempserver

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Force is one step of stopping a process: a signal, and how long it is given.
type Force struct {
	Signal syscall.Signal
	Wait   time.Duration
}

// Program is a server to be run.
type Program struct {
	Path string
	Args []string
	// Dir is the directory it runs in.
	Dir string
	// Log receives what it writes to its standard error; nil drops it.
	Log io.Writer
	// Orphaned is the signal that it gets when its parent dies.
	Orphaned syscall.Signal
	// Stop is how [Process.Stop] ends it, with rising force.
	Stop []Force
}

// Process is a running server.
type Process struct {
	cmd  *exec.Cmd
	stop []Force
	log  *tail
	done chan struct{} // closed when it has ended, after which err may be read
	err  error
}

// Start starts the program and a goroutine that waits for its end.
func (a Account) Start(p Program) (*Process, error) {
	s := &Process{
		cmd:  a.command(context.Background(), p.Dir, p.Orphaned, p.Path, p.Args...),
		stop: p.Stop,
		log:  new(tail),
		done: make(chan struct{}),
	}
	s.cmd.Stderr = s.log
	if p.Log != nil {
		s.cmd.Stderr = io.MultiWriter(s.log, p.Log)
	}
	started := make(chan error, 1)
	go s.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return s, nil
}

// run keeps its thread from start to end: the kernel sends the signal for a dead
// parent when the thread that started the child ends, and the Go runtime ends
// threads as it likes.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
	}
}

// Pid returns the id of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// WaitReady asks answers, which must heed its context, until it says yes. When
// the process ends before that, or ctx does, the error has the end of its log.
func (p *Process) WaitReady(ctx context.Context, answers func(context.Context) bool) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !answers(ctx) {
		select {
		case <-p.done:
			return fmt.Errorf("the server ended while starting: %w: %s", p.err, p.log)
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w: %s", ctx.Err(), p.log)
		case <-ticker.C:
		}
	}
	return nil
}

// Stop ends the process by its id and returns nil once it has ended.
func (p *Process) Stop() error {
	for _, step := range p.stop {
		// The error says that it has ended already; done tells that too.
		_ = p.cmd.Process.Signal(step.Signal)
		select {
		case <-p.done:
			return nil
		case <-time.After(step.Wait):
		}
	}
	return fmt.Errorf("process %d does not end", p.Pid())
}

// Run runs a program in dir to its end and returns the end of what it printed as
// part of the error if it fails. When ctx ends it is killed, and with it the
// programs that it has started.
func (a Account) Run(ctx context.Context, dir, name string, args ...string) error {
	out := new(tail)
	cmd := a.command(ctx, dir, syscall.SIGKILL, name, args...)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Stdout, cmd.Stderr = out, out
	// The thread must outlive the program, for the reason given at Process.run.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}
