package test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

// rwWaiter is a contender of a read-write lock: a reader or a writer that has
// joined, and may hold.
type rwWaiter struct {
	writer bool
	cancel context.CancelFunc
	got    <-chan grant
	handle *lock.Handle // once it was granted
}

// rwLine is the line as it must be, beside the one that is there.
type rwLine struct {
	t    *testing.T
	ctx  context.Context
	c    *client.Client
	m    *lock.RWMutex
	path string
	line []*rwWaiter
}

func (l *rwLine) join(writer bool) *rwWaiter {
	l.t.Helper()
	ctx, cancel := context.WithCancel(l.ctx)
	acquire := l.m.AcquireRead
	if writer {
		acquire = l.m.AcquireWrite
	}
	got := make(chan grant, 1)
	go func() {
		h, err := acquire(ctx)
		got <- grant{handle: h, err: err}
	}()
	w := &rwWaiter{writer: writer, cancel: cancel, got: got}
	l.line = append(l.line, w)
	queueLength(l.ctx, l.t, l.c, l.path, len(l.line))
	l.settle()
	return w
}

// leave takes one out, who holds or waits.
func (l *rwLine) leave(w *rwWaiter) {
	l.t.Helper()
	defer w.cancel()
	if w.handle != nil {
		release(l.t, w.handle)
	} else {
		w.cancel()
		if g := <-w.got; !errors.Is(g.err, context.Canceled) {
			l.t.Errorf("a waiter that gave up got %v", g.err)
		}
	}
	l.line = slices.DeleteFunc(l.line, func(o *rwWaiter) bool { return o == w })
	queueLength(l.ctx, l.t, l.c, l.path, len(l.line))
	l.settle()
}

// settle waits for everybody who must hold now and fails if anybody else does.
func (l *rwLine) settle() {
	l.t.Helper()
	free := true // everything before is a reader
	for i, w := range l.line {
		may := i == 0 || free && !w.writer
		free = free && !w.writer
		if may && w.handle == nil {
			w.handle = granted(l.t, w.got)
		}
		select {
		case g := <-w.got:
			l.t.Fatalf("%d of the line was granted too early: %v", i, g.err)
		default:
		}
		if (w.handle != nil) != may {
			l.t.Fatalf("%d of the line holds: %v", i, w.handle != nil)
		}
	}
}

// kazoo#649: a reader waited for a writer behind it, who waited for the reader.
// Every line of five with every order in which they leave, holding or waiting:
// each time exactly those hold that must.
func TestReadersAndWritersNeverWaitForEachOther(t *testing.T) {
	c := startLocal(t, 1, nil)
	ctx := testContext(t, 3*time.Minute)
	cl := dial(t, c.Endpoints())
	size, orders := 5, 10
	if testing.Short() {
		size, orders = 4, 4
	}
	runs := 0
	for kinds := range 1 << size {
		if kinds&1 == 0 && kinds > 6 { // some first holder; most of what is interesting has a writer there
			continue
		}
		for _, order := range someOrders(size, orders) {
			path := fmt.Sprintf("/rw-%d", runs)
			l := &rwLine{t: t, ctx: ctx, c: cl, m: lock.NewRW(cl, path), path: path}
			var all []*rwWaiter
			for i := range size {
				all = append(all, l.join(kinds>>i&1 == 1))
			}
			for _, i := range order {
				l.leave(all[i])
			}
			runs++
		}
	}
	t.Logf("%d lines", runs)
}

// someOrders are n permutations of 0..size-1, evenly spread over all, first and
// last included.
func someOrders(size, n int) (orders [][]int) {
	total := 1
	for i := 2; i <= size; i++ {
		total *= i
	}
	n = min(n, total)
	for k := range n {
		at := k * (total - 1) / max(1, n-1)
		rest := make([]int, size)
		for i := range rest {
			rest[i] = i
		}
		var order []int
		for left := size; left > 0; left-- {
			i := at % left
			at /= left
			order, rest = append(order, rest[i]), slices.Delete(rest, i, i+1)
		}
		orders = append(orders, order)
	}
	return orders
}

// TestReaderBetweenWritersThroughServersThatDie is kazoo#649 as it was reported, W1
// holds, R waits, W2 waits, with real processes: W1 releases, or its session is
// taken from it, and the leader dies meanwhile.
func TestReaderBetweenWritersThroughServersThatDie(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	ctx := testContext(t, 2*time.Minute)
	cl := dial(t, c.endpoints(), quiet)
	for round, loses := range []bool{false, true} {
		path := fmt.Sprintf("/locks/rw-%d", round)
		owner := must[*client.Session](t)(cl.NewSession(ctx, client.WithIdentity("w1")))
		first := must[*lock.Handle](t)(lock.NewRW(cl, path, lock.WithSession(owner)).AcquireWrite(ctx))
		m := lock.NewRW(cl, path)
		reader, writer := make(chan grant, 1), make(chan grant, 1)
		go func() { h, err := m.AcquireRead(ctx); reader <- grant{handle: h, err: err} }()
		queueLength(ctx, t, cl, path, 2)
		go func() { h, err := m.AcquireWrite(ctx); writer <- grant{handle: h, err: err} }()
		queueLength(ctx, t, cl, path, 3)
		lead := c.leader()
		lead.kill()
		if loses {
			must[*client.Session](t)(cl.NewSession(ctx, client.WithIdentity("w1")))
		} else {
			release(t, first)
		}
		r := granted(t, reader)
		lead.start()
		c.waitReady(30 * time.Second)
		select {
		case g := <-writer:
			t.Errorf("the writer was granted beside a reader: %v", g.err)
		default:
		}
		release(t, r)
		w := granted(t, writer)
		if r.FencingToken() <= first.FencingToken() || w.FencingToken() <= r.FencingToken() {
			t.Errorf("tokens %s, %s, %s", first.FencingToken(), r.FencingToken(), w.FencingToken())
		}
		release(t, w)
		queueLength(ctx, t, cl, path, 0)
	}
}

// kazoo#82, PR#430: a failed try of a semaphore left its inner lock, and hung what
// came after it, and the end of the client.
func TestTriesOfASemaphoreReturnAtOnceAndLeaveNothing(t *testing.T) {
	c := startLocal(t, 1, nil)
	ctx := testContext(t, time.Minute)
	holder, cl := dial(t, c.Endpoints()), dial(t, c.Endpoints())
	h := must[*lock.Handle](t)(lock.NewSemaphore(holder, "/sem", 1).Acquire(ctx))
	s := lock.NewSemaphore(cl, "/sem", 1)
	before := localStats(t, c.Endpoints()[0])
	for range 200 {
		began := time.Now()
		var busy *lock.BusyError
		if _, err := s.TryAcquire(ctx); !errors.As(err, &busy) || busy.Limit != 1 || busy.Holder.Token != h.FencingToken() {
			t.Fatalf("a try while it is full: %v", err)
		}
		if took := time.Since(began); took > promptly {
			t.Fatalf("it took %s", took)
		}
	}
	if after := localStats(t, c.Endpoints()[0]); after.Znodes != before.Znodes {
		t.Errorf("%d znodes became %d", before.Znodes, after.Znodes)
	}
	var limit *lock.LimitError
	if _, err := lock.NewSemaphore(cl, "/sem", 2).TryAcquire(ctx); !errors.As(err, &limit) || limit.Have != 1 || limit.Want != 2 {
		t.Errorf("another limit: %v", err)
	}
	waiting, cancel := context.WithCancel(ctx)
	gave := make(chan error, 1)
	go func() { _, err := s.Acquire(waiting); gave <- err }()
	poll(t, 10*time.Second, "a waiter", func() error {
		info, err := s.Inspect(ctx)
		if err == nil && len(info.Waiters) != 1 {
			err = fmt.Errorf("%d wait", len(info.Waiters))
		}
		return err
	})
	cancel()
	if err := <-gave; !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that was cancelled: %v", err)
	}
	release(t, h)
	h = must[*lock.Handle](t)(s.TryAcquire(ctx))
	release(t, h)
	queueLength(ctx, t, holder, "/sem", 0) // the container of the slots goes too
	began := time.Now()
	if err := cl.Close(); err != nil || time.Since(began) > patience*3*time.Second {
		t.Errorf("close took %s: %v", time.Since(began), err)
	}
}
