package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/fsm"
)

// slowRaft applies each entry a while after it was proposed, in order.
type slowRaft struct {
	mu      sync.Mutex
	entries [][]byte
	fail    error
	takes   time.Duration
}

type slowFuture struct {
	raft.ApplyFuture
	done  chan struct{}
	err   error
	index uint64
}

func (f *slowFuture) Error() error  { <-f.done; return f.err }
func (f *slowFuture) Response() any { return nil }
func (f *slowFuture) Index() uint64 { return f.index }

func (r *slowRaft) Apply(entry []byte, _ time.Duration) raft.ApplyFuture {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = append(r.entries, entry)
	f := &slowFuture{done: make(chan struct{}), err: r.fail, index: uint64(len(r.entries))}
	time.AfterFunc(r.takes, func() { close(f.done) })
	return f
}

// sizes returns how many commands each entry has, and all commands in order.
func (r *slowRaft) sizes(t *testing.T) (sizes []int, all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		n := 0
		if err := fsm.ForEach(e, func(c []byte) error { n++; all = append(all, string(c)); return nil }); err != nil {
			t.Error(err)
		}
		sizes = append(sizes, n)
	}
	return sizes, all
}

// withBatcher runs f beside a batcher and returns how the batcher ended.
func withBatcher(r *slowRaft, applied func(uint64), f func(b *batcher)) error {
	b := newBatcher(r, func() int64 { return 1 }, applied, nil)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.run(ctx) }()
	f(b)
	synctest.Wait()
	stop()
	return <-ended
}

func ignore(uint64) {}

func TestIdleBatcherSendsAtOnceAndABusyOnePacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowRaft{takes: 10 * time.Millisecond}
		_ = withBatcher(r, ignore, func(b *batcher) {
			for i := range 100 {
				if err := b.offer(t.Context(), [][]byte{[]byte(fmt.Sprint(i))}); err != nil {
					t.Error(err)
				}
				synctest.Wait()
			}
			time.Sleep(time.Second)
		})
		sizes, all := r.sizes(t)
		// Two alone, one in each of the places; the rest waits for the first to land.
		if fmt.Sprint(sizes) != "[1 1 98]" {
			t.Errorf("entries of %v commands", sizes)
		}
		for i, c := range all {
			if c != fmt.Sprint(i) {
				t.Fatalf("command %d is %q", i, c)
			}
		}
	})
}

func TestEntryIsBoundedByCommandsAndBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowRaft{takes: time.Millisecond}
		_ = withBatcher(r, ignore, func(b *batcher) {
			small := make([][]byte, 5000)
			for i := range small {
				small[i] = []byte("c")
			}
			half, huge := make([]byte, maxBatchBytes/2), make([]byte, 3*maxBatchBytes)
			if err := b.offer(t.Context(), append(small, half, half, half, huge, half)); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		})
		sizes, _ := r.sizes(t)
		if fmt.Sprint(sizes) != "[2048 2048 905 2 1 1]" {
			t.Errorf("entries of %v commands", sizes)
		}
	})
}

func TestCommitIsToldOnlyWhenNothingMoreIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowRaft{takes: 10 * time.Millisecond}
		var told []uint64
		_ = withBatcher(r, func(i uint64) { told = append(told, i) }, func(b *batcher) {
			for range 3 {
				_ = b.offer(t.Context(), [][]byte{[]byte("c")})
				time.Sleep(5 * time.Millisecond)
			}
			time.Sleep(time.Second)
			_ = b.offer(t.Context(), [][]byte{[]byte("c")})
			time.Sleep(time.Second)
		})
		if fmt.Sprint(told) != "[3 4]" {
			t.Errorf("told of %v, want only the last of each burst", told)
		}
	})
}

func TestFailedEntryEndsTheBatcher(t *testing.T) {
	for _, cause := range []error{raft.ErrNotLeader, raft.ErrLeadershipLost, raft.ErrRaftShutdown, errors.New("disk")} {
		synctest.Test(t, func(t *testing.T) {
			r := &slowRaft{takes: time.Millisecond, fail: cause}
			var outcome error
			err := withBatcher(r, ignore, func(b *batcher) {
				b.propose(&fsm.Command{Kind: fsm.CmdTrim}, func(err error) { outcome = err })
				time.Sleep(time.Second)
				if err := b.offer(t.Context(), [][]byte{[]byte("c")}); !errors.Is(err, errReignOver) {
					t.Errorf("offered afterwards: %v", err)
				}
			})
			if !errors.Is(err, cause) || !errors.Is(outcome, cause) {
				t.Errorf("ended with %v, the proposal with %v; want %v", err, outcome, cause)
			}
		})
	}
}

// TestSignsOfLifeOvertakeWhatWaits: that a session is alive after all must not wait
// for the writes of others.
func TestSignsOfLifeOvertakeWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowRaft{takes: time.Second}
		_ = withBatcher(r, ignore, func(b *batcher) {
			for range 6 {
				if err := b.offer(t.Context(), [][]byte{make([]byte, maxBatchBytes)}); err != nil {
					t.Error(err)
				}
			}
			synctest.Wait() // two are under way
			start := time.Now()
			done := make(chan time.Duration, 1)
			b.propose(&fsm.Command{Kind: fsm.CmdUnsuspect, Expire: &fsm.Expire{}}, func(error) { done <- time.Since(start) })
			if took := <-done; took > 2*time.Second {
				t.Errorf("it took %v with entries of a second and room for two", took)
			}
			time.Sleep(time.Minute)
		})
	})
}

func TestFullQueueHoldsUpTheOffering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowRaft{takes: time.Hour}
		_ = withBatcher(r, ignore, func(b *batcher) {
			big := make([]byte, maxBatchBytes)
			for range maxQueueBytes/maxBatchBytes + maxInFlight {
				_ = b.offer(t.Context(), [][]byte{big})
				synctest.Wait()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := b.offer(ctx, [][]byte{big}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("one too many: %v", err)
			}
			later := make(chan error, 1)
			go func() { later <- b.offer(context.Background(), [][]byte{big}) }()
			time.Sleep(2 * time.Hour) // entries land, and there is room
			if err := <-later; err != nil {
				t.Errorf("with room: %v", err)
			}
			time.Sleep(40 * time.Hour)
		})
	})
}
