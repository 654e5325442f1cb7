package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// workerProcess is a worker in a process of its own, so that it can really be
// stopped.
type workerProcess struct {
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	events chan workerEvent // closed when its output ends
}

// startWorker runs this program's hidden worker command.
func startWorker(command []string, c WorkerConfig) (*workerProcess, error) {
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	w := &workerProcess{name: c.Name, events: make(chan workerEvent, 16)}
	w.cmd = exec.Command(command[0], append(command[1:], string(config))...)
	w.cmd.Stderr = os.Stderr
	w.cmd.SysProcAttr = childAttributes(syscall.SIGKILL) // it may be stopped
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start worker %s: %w", c.Name, err)
	}
	go w.read(out)
	return w, nil
}

func (w *workerProcess) read(out io.Reader) {
	defer close(w.events)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var e workerEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			e = workerEvent{Event: "failed", Detail: err.Error()}
		}
		w.events <- e
	}
}

// next waits for the worker's next event.
func (w *workerProcess) next(ctx context.Context) (workerEvent, error) {
	select {
	case e, ok := <-w.events:
		if !ok {
			return e, fmt.Errorf("worker %s has ended", w.name)
		}
		if e.Event == "failed" {
			return e, fmt.Errorf("worker %s: %s", w.name, e.Detail)
		}
		return e, nil
	case <-ctx.Done():
		return workerEvent{}, fmt.Errorf("worker %s says nothing: %w", w.name, context.Cause(ctx))
	}
}

// do gives the worker a command and waits for its answer.
func (w *workerProcess) do(ctx context.Context, command string) (workerEvent, error) {
	if _, err := io.WriteString(w.in, command+"\n"); err != nil {
		return workerEvent{}, fmt.Errorf("worker %s: %w", w.name, err)
	}
	return w.next(ctx)
}

func (w *workerProcess) signal(s syscall.Signal) error { return w.cmd.Process.Signal(s) }

// end is close for a worker whose outcome is known.
func (w *workerProcess) end() { _ = w.close() }

// close lets the worker end, and makes it after 3 s.
func (w *workerProcess) close() error {
	err := errors.Join(w.signal(syscall.SIGCONT), w.in.Close())
	kill := time.AfterFunc(3*time.Second, func() { _ = w.cmd.Process.Kill() })
	defer kill.Stop()
	for range w.events { // until its output ends
	}
	return errors.Join(err, w.cmd.Wait())
}
