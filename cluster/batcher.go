package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/fsm"
)

const (
	// maxInFlight is how many entries are proposed and not yet applied. More
	// only splits the batches: this limit is what makes them (RAFT-NOTES B).
	maxInFlight = 2
	// maxBatchCommands and maxBatchBytes bound an entry. A larger command is an
	// entry of its own.
	maxBatchCommands = 2048
	maxBatchBytes    = 1 << 20
	// maxQueueCommands and maxQueueBytes bound what waits for an entry. When it
	// is full the offering stream is not read, so its sender waits. It is a few
	// entries only: who waits at his own server is served in a fair order, who
	// waits here is not.
	maxQueueCommands = 1 << 14
	maxQueueBytes    = 8 << 20
)

// errReignOver is returned by offer when this leadership has ended: whatever
// was offered and not seen applied may or may not be done.
var errReignOver = errors.New("this leadership is over")

// queued is a command that waits for an entry.
type queued struct {
	cmd []byte
	// done, if set, is called once with the end of the entry that carried the
	// command: nil if it was applied here, an error if its outcome is unknown.
	done func(error)
}

// batcher packs commands into log entries, at the leader. An entry is sealed as
// late as possible: first the right to propose is taken, then the queue is
// emptied. So an idle batcher sends at once, and a busy one sends large entries,
// without a timer. One goroutine calls raft.Apply, so entries enter the log in
// the order they were sealed.
type batcher struct {
	raft  applier
	clock func() int64 // cluster time in ms
	// applied hears of the entry at index, when it was applied here and nothing
	// more waits or is under way.
	applied func(index uint64)
	took    func(time.Duration) // may be nil
	failed  func(commands int)  // may be nil; hears of an entry whose outcome is unknown
	// may says whether anything may be proposed at the moment: not while the disks
	// have no room at all. nil: it always may.
	may func() bool

	wake nudge // the queue is not empty
	room nudge // the queue has room again
	done chan struct{}
	// aloft counts the entries under way. The slots do not tell: one is held
	// while the queue is empty.
	aloft atomic.Int32

	mu     sync.Mutex // guards what follows
	urgent []queued   // goes first
	queue  []queued
	bytes  int // of queue
	ended  bool
}

// applier is the part of raft.Raft that proposes.
type applier interface {
	Apply(cmd []byte, timeout time.Duration) raft.ApplyFuture
}

func newBatcher(r applier, clock func() int64, applied func(uint64), took func(time.Duration)) *batcher {
	return &batcher{
		raft: r, clock: clock, applied: applied, took: took,
		wake: newNudge(), room: newNudge(), done: make(chan struct{}),
	}
}

// offer appends commands to the queue, in order, all or none. It waits while
// the queue is full. It returns errReignOver once the batcher has ended.
func (b *batcher) offer(ctx context.Context, cmds [][]byte) error {
	for {
		ok, err := b.tryOffer(cmds)
		if ok || err != nil {
			return err
		}
		select {
		case <-b.room:
		case <-b.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *batcher) tryOffer(cmds [][]byte) (ok bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false, errReignOver
	}
	if len(b.queue) >= maxQueueCommands || b.bytes >= maxQueueBytes {
		return false, nil
	}
	for _, c := range cmds {
		b.pushLocked(queued{cmd: c})
	}
	b.wake.push()
	if len(b.queue) < maxQueueCommands && b.bytes < maxQueueBytes {
		b.room.push() // several may wait for room
	}
	return true, nil
}

// propose appends a command of the leader itself. It never waits: the leader
// proposes little, and what it proposes frees room. That a session was silent, or
// is so no more, goes before all that waits: its heartbeats are not answered
// before. done is called once.
func (b *batcher) propose(c *fsm.Command, done func(error)) {
	cmd := fsm.AppendCommand(nil, c)
	b.mu.Lock()
	if b.ended {
		b.mu.Unlock()
		done(errReignOver)
		return
	}
	if c.Kind == fsm.CmdSuspect || c.Kind == fsm.CmdUnsuspect {
		b.urgent = append(b.urgent, queued{cmd, done})
	} else {
		b.pushLocked(queued{cmd, done})
	}
	b.mu.Unlock()
	b.wake.push()
}

func (b *batcher) pushLocked(q queued) {
	b.queue = append(b.queue, q)
	b.bytes += len(q.cmd)
}

// idle says that nothing waits for an entry.
func (b *batcher) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue) == 0 && len(b.urgent) == 0
}

// take removes what fits into one entry.
func (b *batcher) take() []queued {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := min(len(b.urgent), maxBatchCommands); n > 0 { // they are small
		batch := b.urgent[:n:n]
		b.urgent = b.urgent[n:]
		b.wake.push()
		return batch
	}
	n, size := 0, 0
	for n < len(b.queue) && n < maxBatchCommands {
		size += len(b.queue[n].cmd)
		if n > 0 && size > maxBatchBytes {
			size -= len(b.queue[n].cmd)
			break
		}
		n++
	}
	batch := b.queue[:n:n]
	b.bytes -= size
	if b.queue = b.queue[n:]; len(b.queue) == 0 {
		b.queue = nil
	} else {
		b.wake.push()
	}
	b.room.push()
	return batch
}

// inFlight is a proposed entry.
type inFlight struct {
	future raft.ApplyFuture
	batch  []queued
	sealed time.Time
}

// run proposes until an entry fails or ctx ends, and returns why. From then on
// offers are refused.
func (b *batcher) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	flying := make(chan inFlight, maxInFlight) // never full: a slot is held for each
	slots := make(chan struct{}, maxInFlight)
	var wg sync.WaitGroup
	wg.Go(func() {
		for f := range flying {
			if err := b.land(f, slots); err != nil {
				cancel(err)
			}
		}
	})
	b.fly(ctx, flying, slots)
	b.end()
	close(flying)
	wg.Wait()
	cancel(nil)
	return context.Cause(ctx)
}

func (b *batcher) fly(ctx context.Context, flying chan<- inFlight, slots chan struct{}) {
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		batch := b.take()
		for len(batch) == 0 {
			select {
			case <-b.wake:
			case <-ctx.Done():
				return
			}
			batch = b.take()
		}
		b.awaitRoom(ctx)
		if ctx.Err() != nil {
			settleAll(batch, errReignOver)
			return
		}
		b.aloft.Add(1)
		entry := b.seal(batch)
		flying <- inFlight{b.raft.Apply(entry, 0), batch, time.Now()}
	}
}

// roomTick is how often it is looked at whether the disks have room again.
const roomTick = 50 * time.Millisecond

func (b *batcher) awaitRoom(ctx context.Context) {
	for b.may != nil && !b.may() && ctx.Err() == nil {
		pause(ctx, nil, roomTick)
	}
}

// seal makes the entry. Its memory belongs to Raft from then on.
func (b *batcher) seal(batch []queued) []byte {
	size := 16
	for _, q := range batch {
		size += len(q.cmd) + binary.MaxVarintLen32
	}
	entry := fsm.NewBatch(make([]byte, 0, size), b.clock())
	for _, q := range batch {
		entry = fsm.AppendToBatch(entry, q.cmd)
	}
	return entry
}

// land waits for an entry. An entry that was not appended for certain is
// treated like one whose outcome is unknown: the origins offer both again, and
// the number lines sort it out.
func (b *batcher) land(f inFlight, slots <-chan struct{}) error {
	err := f.future.Error()
	aloft := b.aloft.Add(-1)
	<-slots
	if err == nil {
		if refused, ok := f.future.Response().(error); ok {
			err = refused
		}
	}
	if err != nil {
		if b.failed != nil {
			b.failed(len(f.batch))
		}
		settleAll(f.batch, err)
		return fmt.Errorf("propose: %w", err)
	}
	if b.took != nil {
		b.took(time.Since(f.sealed))
	}
	settleAll(f.batch, nil)
	if aloft == 0 && b.idle() {
		b.applied(f.future.Index())
	}
	return nil
}

func settleAll(batch []queued, err error) {
	for _, q := range batch {
		if q.done != nil {
			q.done(err)
		}
	}
}

// end refuses further offers and drops what waits.
func (b *batcher) end() {
	b.mu.Lock()
	first := !b.ended
	b.ended = true
	rest := append(b.urgent, b.queue...)
	b.urgent, b.queue, b.bytes = nil, nil, 0
	b.mu.Unlock()
	if first {
		close(b.done)
	}
	settleAll(rest, errReignOver)
}
