package cluster

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// errDiskStalled is the cause when a write took longer than the deadline.
	errDiskStalled = errors.New("the disk does not answer")
	// errDiskFailed is the cause when a write failed, and the answer to every
	// write after that.
	errDiskFailed = errors.New("the disk failed")
)

// diskWatch guards the writes of the Raft stores. The first write that fails,
// or that is still running after the deadline, is reported once to fail, and
// every later write is refused: after a failed append hashicorp/raft no longer
// knows its own last index, and after a failed fsync nobody knows what is on
// the disk. A leader whose write hangs cannot step down by itself, because the
// write holds Raft's only loop; so fail must cut the server off first, that the
// others elect, and end the process then.
//
// It is safe for concurrent use.
type diskWatch struct {
	deadline time.Duration // 0: no deadline
	fail     func(error)   // called at most once, on a goroutine of its own or the writer's
	before   func() error  // called before each write, as a part of it; nil: no call
	after    func() error  // called after each write that was done, as a part of it; nil: no call

	once   sync.Once
	failed atomic.Bool
	closed atomic.Bool
}

func newDiskWatch(deadline time.Duration, fail func(error)) *diskWatch {
	return &diskWatch{deadline: deadline, fail: fail}
}

// do runs one write called op under the watch.
func (w *diskWatch) do(op string, write func() error) error {
	if w.failed.Load() {
		return fmt.Errorf("%s: %w", op, errDiskFailed)
	}
	stop := w.arm(op)
	err := w.whole(write)
	stop()
	if err != nil {
		w.report(fmt.Errorf("%s: %w: %w", op, errDiskFailed, err))
		return err
	}
	if w.failed.Load() { // it came through, but after we had given up: its outcome stays unknown
		return fmt.Errorf("%s: %w", op, errDiskFailed)
	}
	return nil
}

// whole is a write with what tests have put around it.
func (w *diskWatch) whole(write func() error) error {
	for _, part := range []func() error{w.before, write, w.after} {
		if part == nil {
			continue
		}
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// stallSlices is how often the deadline of a write is looked at. A slice counts
// only when this process was there to see it end, so a process that was itself
// stopped for longer than the deadline does not take that for a slow disk: it
// loses one slice.
const stallSlices = 16

// arm reports the write called op once it has run for the deadline.
func (w *diskWatch) arm(op string) (stop func()) {
	if w.deadline <= 0 {
		return func() {}
	}
	slice := w.deadline / stallSlices
	var mu sync.Mutex // guards left and t
	var t *time.Timer
	left := stallSlices // 0: the write has ended, or was reported
	mu.Lock()
	defer mu.Unlock()
	t = time.AfterFunc(slice, func() {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case left > 1:
			left--
			t.Reset(slice)
		case left == 1:
			left = 0
			go w.report(fmt.Errorf("%s: %w after %v", op, errDiskStalled, w.deadline))
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		left = 0
		t.Stop()
	}
}

// report hands the first cause to fail. After close nothing is reported: a
// write that meets a closed store is the end of this server, not of its disk.
func (w *diskWatch) report(err error) {
	if w.closed.Load() {
		return
	}
	w.once.Do(func() {
		w.failed.Store(true)
		if w.fail != nil {
			w.fail(err)
		}
	})
}

// isCutOff says that a write has failed, and that fail has done its work.
func (w *diskWatch) isCutOff() bool {
	if !w.failed.Load() {
		return false
	}
	w.once.Do(func() {}) // waits for the end of the one that is at it
	return true
}

func (w *diskWatch) close() { w.closed.Store(true) }
