package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a running server program. done is closed when it has ended, after
// which err may be read.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// startProcess starts cmd and a goroutine that waits for its end.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run keeps its thread from start to end: the kernel sends the signal for a dead
// parent when the thread that started the child ends, and the Go runtime ends
// threads as it likes.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
	}
}

// PostgreSQL's names for its signals: fast rolls all transactions back and
// stops in order, immediate stops at once, and SIGKILL is for what hears neither.
var stopSignals = []struct {
	signal syscall.Signal
	wait   time.Duration
}{
	{syscall.SIGINT, 10 * time.Second},
	{syscall.SIGQUIT, 5 * time.Second},
	{syscall.SIGKILL, 5 * time.Second},
}

// stop ends the process by its id, with rising force, and returns nil once it
// has ended.
func (p *process) stop() error {
	for _, step := range stopSignals {
		// The error says that it has ended already; done tells that too.
		_ = p.cmd.Process.Signal(step.signal)
		select {
		case <-p.done:
			return nil
		case <-time.After(step.wait):
		}
	}
	return fmt.Errorf("process %d does not end", p.cmd.Process.Pid)
}

// runTool runs a program to its end and returns what it printed as part of the
// error if it fails.
func runTool(ctx context.Context, as account, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = cleanEnv()
	cmd.SysProcAttr = as.attributes()
	// The thread must outlive the program, for the reason given at process.run.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// cleanEnv leaves out what could lead the programs to another server or tongue.
func cleanEnv() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
}
