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

	"github.com/coordd/coord/internal/tied"
)

// workerProcess is a worker in a process of its own, so that it can really be
// stopped.
type workerProcess struct {
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	events chan workerEvent // closed when its output ends
}

// worker starts a worker process, which ends with the stage. db may be nil.
func (s *stage) worker(name string, timeout time.Duration, db *database) (*workerProcess, error) {
	c := workerConfig{Name: name, Cluster: s.cluster, SessionTimeout: timeout}
	if db != nil {
		c.Database = db.dsn
	}
	w, err := startWorker(s.o.Worker, c)
	if err == nil {
		s.workers = append(s.workers, w)
	}
	return w, err
}

// startWorker runs this program's hidden worker command.
func startWorker(program []string, c workerConfig) (*workerProcess, error) {
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	w := &workerProcess{name: c.Name, events: make(chan workerEvent, 16)}
	w.cmd = exec.Command(program[0], append(program[1:], string(config))...)
	w.cmd.Stderr = os.Stderr
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := tied.Start(w.cmd, syscall.SIGKILL); err != nil { // it may be stopped
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
			e = workerEvent{Event: eventFailed, Detail: err.Error()}
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
		if e.Event == eventFailed {
			return e, fmt.Errorf("worker %s: %s", w.name, e.Detail)
		}
		return e, nil
	case <-ctx.Done():
		return workerEvent{}, fmt.Errorf("worker %s says nothing: %w", w.name, context.Cause(ctx))
	}
}

// tell gives the worker a command and does not wait for its answer.
func (w *workerProcess) tell(c command) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if _, err := w.in.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("worker %s: %w", w.name, err)
	}
	return nil
}

// do gives the worker a command and waits for its answer.
func (w *workerProcess) do(ctx context.Context, c command) (workerEvent, error) {
	if err := w.tell(c); err != nil {
		return workerEvent{}, err
	}
	return w.next(ctx)
}

// pause stops the process where it is, and resume lets it go on.
func (w *workerProcess) pause() error  { return w.signal(syscall.SIGSTOP) }
func (w *workerProcess) resume() error { return w.signal(syscall.SIGCONT) }

// kill ends the process without a word.
func (w *workerProcess) kill() error { return w.signal(syscall.SIGKILL) }

func (w *workerProcess) signal(s syscall.Signal) error {
	if err := w.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("worker %s: %w", w.name, err)
	}
	return nil
}

// end is close for a worker whose outcome is known.
func (w *workerProcess) end() { _ = w.close() }

// close lets the worker end, and makes it after 3 s.
func (w *workerProcess) close() error {
	err := errors.Join(w.resume(), w.in.Close())
	kill := time.AfterFunc(3*time.Second, func() { _ = w.cmd.Process.Kill() })
	defer kill.Stop()
	for range w.events { // until its output ends
	}
	return errors.Join(err, w.cmd.Wait())
}
