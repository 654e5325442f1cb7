package test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
	"github.com/coordd/coord/znode"
)

const (
	lockDelay = 3 * time.Second
	// delaySlack is how much earlier than the delay a lock may be granted when the
	// leader changes: what the servers' clocks and the cluster's differ.
	delaySlack = 100 * time.Millisecond
	// promptly is what "at once" may take on a busy machine.
	promptly = 5 * time.Second
)

// lingers waits until a queue entry stays behind its session, and returns when
// that was.
func lingers(ctx context.Context, t *testing.T, c *client.Client, node string) time.Time {
	t.Helper()
	for e, err := range c.Watch(ctx, node, client.Initial(client.Linearizable)) {
		switch {
		case err != nil:
			t.Fatal(err)
		case e.Type == client.EventChanged && e.Stat.Kind == client.TTL:
			if e.Cause != znode.BySessionExpiry || e.Stat.TTL != lockDelay || e.Stat.EphemeralOwner != 0 {
				t.Errorf("it stays as %+v, cause %d", e.Stat, e.Cause)
			}
			return time.Now()
		case e.Type != client.EventPresent && e.Type != client.EventChanged:
			t.Fatalf("event %s of %s", e.Type, e.Path)
		}
	}
	return time.Time{}
}

// TestLockDelayRunsAfterAnUncleanLoss with real processes: the holder is cut off
// and knows of its loss, its entry stays, and the next holder comes when the delay
// is over, not before and not much later; also when the leader is killed in
// between, and when all servers are.
func TestLockDelayRunsAfterAnUncleanLoss(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	ctx := testContext(t, 2*time.Minute)
	next := dial(t, c.endpoints())
	for round, disturb := range []func(){
		func() {},
		func() { c.bounceLeader() },
		func() { c.bounceAll() },
	} {
		m := newMortal(t, c, fmt.Sprintf("/mortal-%d", round), 2*time.Second)
		h := must[*lock.Handle](t)(lock.New(m.c, "/locks/l", lock.LockDelay(lockDelay)).Acquire(ctx))
		lost := make(chan time.Time, 1)
		go func() { <-h.Lost(); lost <- time.Now() }()
		waiting := inQueue(ctx, lock.New(next, "/locks/l"))
		queueLength(ctx, t, next, "/locks/l", 2)
		m.cut()
		ended := lingers(ctx, t, next, h.Node())
		select {
		case at := <-lost:
			t.Logf("the holder knew %s before its session ended", ended.Sub(at))
		default:
			t.Error("the session ended before the holder knew of its loss")
		}
		if _, err := next.Txn(ctx, h.Guard()); !errors.Is(err, client.ErrBadVersion) {
			t.Errorf("the guard of the lost holder: %v", err)
		}
		info := must[lock.Info](t)(lock.Inspect(ctx, next, "/locks/l"))
		if len(info.Holders) != 1 || len(info.Waiters) != 1 || info.Holders[0].Session != 0 ||
			time.Until(info.Holders[0].LingersUntil) > lockDelay || time.Until(info.Holders[0].LingersUntil) < 0 {
			t.Errorf("an operator sees %+v", info)
		}
		if _, err := lock.New(next, "/locks/l").TryAcquire(ctx); !errors.Is(err, lock.ErrBusy) {
			t.Errorf("a try during the delay: %v", err)
		}
		disturb()
		nh := granted(t, waiting)
		took := time.Since(ended)
		t.Logf("round %d: the next holder came %s after the end of the session", round, took)
		if took < lockDelay-delaySlack || round == 0 && took > lockDelay+promptly {
			t.Errorf("round %d: the next holder came after %s, the delay is %s", round, took, lockDelay)
		}
		if nh.FencingToken() <= h.FencingToken() {
			t.Errorf("token %s after %s", nh.FencingToken(), h.FencingToken())
		}
		release(t, nh)
	}
}

func (c *processes) bounceLeader() {
	lead := c.leader()
	lead.kill()
	lead.start()
	c.waitReady(30 * time.Second)
}

func (c *processes) bounceAll() {
	for _, p := range c.nodes {
		p.signal(syscall.SIGKILL)
	}
	for _, p := range c.nodes {
		<-p.Done()
		p.start()
	}
	c.waitReady(30 * time.Second)
}

// TestNoLockDelayAfterARelease, nor behind a waiter that dies, whatever delay it
// would have had as a holder, nor when an operator ends it.
func TestNoLockDelayAfterARelease(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	ctx := testContext(t, time.Minute)
	cl := dial(t, c.endpoints())
	contender := func(identity string) *client.Session {
		return must[*client.Session](t)(cl.NewSession(ctx, client.WithIdentity(identity), quiet))
	}
	delayed := func(s *client.Session) *lock.Mutex {
		return lock.New(cl, "/locks/l", lock.LockDelay(time.Minute), lock.WithSession(s))
	}
	first, last := acquire(t, delayed(contender("first"))), lock.New(cl, "/locks/l")
	dies := inQueue(ctx, delayed(contender("dies")))
	queueLength(ctx, t, cl, "/locks/l", 2)
	waiting := inQueue(ctx, last)
	queueLength(ctx, t, cl, "/locks/l", 3)

	began := time.Now()
	contender("dies") // its session is taken over: an unclean end
	queueLength(ctx, t, cl, "/locks/l", 2)
	if g := <-dies; !errors.Is(g.err, lock.ErrLost) {
		t.Errorf("the waiter that died got %v", g.err)
	}
	if took := time.Since(began); took > promptly {
		t.Errorf("the entry of a waiter that died stayed for %s", took)
	}
	began = time.Now()
	release(t, first)
	h := granted(t, waiting)
	if took := time.Since(began); took > promptly {
		t.Errorf("%s after a release", took)
	}
	release(t, h)

	lost := acquire(t, delayed(contender("first")))
	waiting = inQueue(ctx, last)
	queueLength(ctx, t, cl, "/locks/l", 2)
	contender("first")
	<-lost.Lost()
	queueLength(ctx, t, cl, "/locks/l", 2) // it lingers, for a minute
	if st, _, err := cl.Exists(ctx, lost.Node()); err != nil || st.Kind != client.TTL {
		t.Errorf("the entry of the lost holder is %+v: %v", st, err)
	}
	select {
	case g := <-waiting:
		t.Errorf("granted during the delay: %v", g.err)
	case <-time.After(500 * time.Millisecond):
	}
	began = time.Now()
	if err := cl.Delete(ctx, lost.Node(), client.AnyVersion); err != nil {
		t.Fatal(err)
	}
	h = granted(t, waiting)
	if took := time.Since(began); took > promptly {
		t.Errorf("%s after the operator has ended the delay", took)
	}
	release(t, h)
}

// TestContenderThatGaveUpLeavesByItself: its process lives and keeps the session,
// but nobody removes its entry. The cluster does when the time is over.
func TestContenderThatGaveUpLeavesByItself(t *testing.T) {
	skipIfShort(t)
	const limit = 2 * time.Second
	c := startProcesses(t, 3, "")
	ctx := testContext(t, time.Minute)
	cl, hung := dial(t, c.endpoints()), dial(t, c.endpoints())
	h := acquire(t, lock.New(cl, "/locks/l"))
	made := must[client.Created](t)(hung.Create(ctx, "/locks/l/_c_hung-lock-", nil, client.WithEphemeral(), client.WithSequential(), client.WithTTL(limit)))
	since := time.Now()
	waiting := inQueue(ctx, lock.New(cl, "/locks/l"))
	queueLength(ctx, t, cl, "/locks/l", 3)
	release(t, h)
	h = granted(t, waiting)
	took := time.Since(since)
	if took < limit || took > limit+promptly {
		t.Errorf("the next one came after %s, the limit is %s", took, limit)
	}
	if st := hung.Session().State(); hung.Session().Context().Err() != nil {
		t.Errorf("the session of the hung contender is %v", st)
	}
	if _, err := hung.Set(ctx, made.Path, nil, client.AnyVersion, client.ClearTTL()); !errors.Is(err, client.ErrNoNode) {
		t.Errorf("it comes back too late: %v", err)
	}

	// A contender that is alive gives up at the same time, and is told so.
	began := time.Now()
	_, err := lock.New(hung, "/locks/l", lock.WaitLimit(limit)).Acquire(ctx)
	if took := time.Since(began); !errors.Is(err, lock.ErrWaitLimit) || took < limit || took > limit+promptly {
		t.Errorf("after %s: %v", took, err)
	}
	queueLength(ctx, t, cl, "/locks/l", 1)
	// One that was granted the lock in time keeps it.
	waiting = inQueue(ctx, lock.New(hung, "/locks/l", lock.WaitLimit(limit)))
	queueLength(ctx, t, cl, "/locks/l", 2)
	release(t, h)
	h = granted(t, waiting)
	select {
	case <-h.Lost():
		t.Errorf("lost: %v", context.Cause(h.Context()))
	case <-time.After(limit + time.Second):
	}
	if err := h.Verify(ctx); err != nil {
		t.Error(err)
	}
	release(t, h)
}
