package test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/recipes/lock"
)

func acquire(t testing.TB, m *lock.Mutex) *lock.Handle {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience*30*time.Second)
	defer cancel()
	h, err := m.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func release(t testing.TB, h *lock.Handle) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience*30*time.Second)
	defer cancel()
	if err := h.Release(ctx); err != nil {
		t.Fatal(err)
	}
}

// inQueue starts an Acquire whose outcome is sent.
func inQueue(ctx context.Context, m *lock.Mutex) <-chan grant {
	got := make(chan grant, 1)
	go func() {
		h, err := m.Acquire(ctx)
		got <- grant{handle: h, err: err}
	}()
	return got
}

// granted waits for the outcome.
func granted(t testing.TB, got <-chan grant) *lock.Handle {
	t.Helper()
	select {
	case g := <-got:
		if g.err != nil {
			t.Fatal(g.err)
		}
		return g.handle
	case <-time.After(patience * 30 * time.Second):
		t.Fatal("not granted")
		return nil
	}
}

// queueLength waits until the queue of a lock has so many entries.
func queueLength(ctx context.Context, t testing.TB, c *client.Client, path string, want int) {
	t.Helper()
	poll(t, 30*time.Second, "the queue", func() error {
		names, err := c.Children(ctx, path, client.Mode(client.ReadSession))
		if errors.Is(err, client.ErrNoNode) {
			err = nil
		}
		if err == nil && len(names) != want {
			err = fmt.Errorf("%d entries, want %d", len(names), want)
		}
		return err
	})
}

// curator#3, go-zookeeper#229: the contender's create was done and its answer
// lost; the retry made a second entry and the first blocked everybody.
func TestLostAnswerToAContenderMakesNoSecondEntry(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 3, nil)
	ctx := testContext(t, time.Minute)
	px, addresses := proxies(t, c.Endpoints())
	watcher, cl := dial(t, c.Endpoints()), dial(t, addresses)
	m := lock.New(cl, "/lock")
	release(t, acquire(t, m)) // the folder is there now
	mute := func(on bool) {
		for _, p := range px {
			p.mute.Store(on)
			if !on {
				p.cut()
			}
		}
	}
	mute(true)
	got := inQueue(ctx, m)
	queueLength(ctx, t, watcher, "/lock", 1)
	mute(false)
	h := granted(t, got)
	names, err := watcher.Children(ctx, "/lock")
	if err != nil || len(names) != 1 || h.Node() != "/lock/"+names[0] {
		t.Fatalf("the entries are %v, the handle has %s: %v", names, h.Node(), err)
	}
	if st, _, err := watcher.Exists(ctx, h.Node()); err != nil || fence.Token(st.Czxid) != h.FencingToken() {
		t.Errorf("token %s, czxid %s, %v", h.FencingToken(), st.Czxid, err)
	}
	// The caller loses patience while the answer is lost.
	mute(true)
	waiting, cancel := context.WithCancel(ctx)
	got = inQueue(waiting, m)
	queueLength(ctx, t, watcher, "/lock", 2)
	cancel()
	if g := <-got; !errors.Is(g.err, context.Canceled) {
		t.Errorf("a cancelled wait: %v", g.err)
	}
	mute(false)
	queueLength(ctx, t, watcher, "/lock", 1)
	release(t, h)
	queueLength(ctx, t, watcher, "/lock", 0)
}

// etcd#11456, etcd#9921: a waiter was granted the lock although its own session
// had ended while it waited.
func TestWaiterWhoseSessionEndsIsNotGranted(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 1, shortSessions)
	ctx := testContext(t, time.Minute)
	px, addresses := proxies(t, c.Endpoints())
	watcher := dial(t, c.Endpoints())
	for name, end := range map[string]func(*client.Client){
		"by silence": func(*client.Client) {
			for _, p := range px {
				p.refuse.Store(true)
				p.cut()
			}
		},
		"by closing": func(cl *client.Client) {
			if err := cl.Close(); err != nil {
				t.Error(err)
			}
		},
	} {
		for _, p := range px {
			p.refuse.Store(false)
		}
		holder := acquire(t, lock.New(watcher, "/lock"))
		cl := dial(t, addresses, client.WithSessionTimeout(time.Second))
		got := inQueue(ctx, lock.New(cl, "/lock"))
		queueLength(ctx, t, watcher, "/lock", 2)
		end(cl)
		g := <-got
		if g.handle != nil || !errors.Is(g.err, lock.ErrLost) && !errors.Is(g.err, client.ErrClosed) {
			t.Errorf("%s: the waiter gets %v", name, g.err)
		}
		queueLength(ctx, t, watcher, "/lock", 1)
		release(t, holder)
		release(t, acquire(t, lock.New(watcher, "/lock")))
	}
}

// curator#1006, curator#1193: a release that failed on the way left client and
// server in disagreement for good.
func TestReleaseDuringAnOutageIsMadeUpFor(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 1, nil)
	ctx := testContext(t, 2*time.Minute)
	cl, other := dial(t, c.Endpoints()), dial(t, c.Endpoints())
	m := lock.New(cl, "/lock")
	h := acquire(t, m)
	if err := c.StopServer(0); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := h.Release(short); !errors.Is(err, client.ErrUnknownOutcome) {
		t.Errorf("a release in an outage: %v", err)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %s", took)
	}
	if h.Held() {
		t.Error("a handle that was released says it is held")
	}
	if err := c.StartServer(0); err != nil {
		t.Fatal(err)
	}
	release(t, acquire(t, m))
	release(t, acquire(t, lock.New(other, "/lock")))
	queueLength(ctx, t, other, "/lock", 0)
}

// kazoo#315: the second try of the same process waited for itself.
// kazoo#82, PR#430: a failed try left something that hung later calls and the end.
// spring-integration#2557: each try left a node.
func TestTriesReturnAtOnceAndLeaveNothing(t *testing.T) {
	c := startLocal(t, 1, nil)
	ctx := testContext(t, time.Minute)
	cl := dial(t, c.Endpoints())
	m := lock.New(cl, "/lock")
	h := acquire(t, m)
	s := must[*client.Session](t)(cl.NewSession(ctx))
	before := localStats(t, c.Endpoints()[0])
	folder, _, _ := cl.Exists(ctx, "/lock")
	const tries = 500
	for range tries {
		for _, other := range []*lock.Mutex{m, lock.New(cl, "/lock"), lock.New(cl, "/lock", lock.WithSession(s))} {
			var busy *lock.BusyError
			if _, err := other.TryAcquire(ctx); !errors.As(err, &busy) || busy.Holder.Token != h.FencingToken() {
				t.Fatalf("a try while it is held: %v", err)
			}
		}
		if _, err := m.TryAcquire(h.Context()); !errors.Is(err, lock.ErrDeadlock) {
			t.Fatalf("a try by whom holds it: %v", err)
		}
		must[client.Zxid](t)(cl.Sync(ctx)) // whether the cluster is there takes no node to find out
	}
	after := localStats(t, c.Endpoints()[0])
	if after.Znodes != before.Znodes || after.Transactions != before.Transactions || after.Entries > before.Entries+20 {
		t.Errorf("%d tries: znodes %d to %d, transactions %d to %d, entries %d to %d", tries,
			before.Znodes, after.Znodes, before.Transactions, after.Transactions, before.Entries, after.Entries)
	}
	if st, _, err := cl.Exists(ctx, "/lock"); err != nil || st != folder {
		t.Errorf("the folder was %+v and is %+v, %v", folder, st, err)
	}
	release(t, h)
	for range 50 {
		h, err := m.TryAcquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		release(t, h)
	}
	queueLength(ctx, t, cl, "/lock", 0)
	began := time.Now()
	if err := cl.Close(); err != nil || time.Since(began) > patience*3*time.Second {
		t.Errorf("close took %s: %v", time.Since(began), err)
	}
}

// go-zookeeper#145: a waiter that took the wrong node for its predecessor asked
// the server without a pause.
func TestWaitersAskForNothing(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 1, nil)
	ctx := testContext(t, time.Minute)
	h := acquire(t, lock.New(dial(t, c.Endpoints()), "/lock"))
	watcher := dial(t, c.Endpoints())
	first := inQueue(ctx, lock.New(dial(t, c.Endpoints()), "/lock"))
	queueLength(ctx, t, watcher, "/lock", 2)
	second := inQueue(ctx, lock.New(dial(t, c.Endpoints()), "/lock"))
	queueLength(ctx, t, watcher, "/lock", 3)
	quiet := func() bool { // for half a second
		before := localStats(t, c.Endpoints()[0]).Requests
		time.Sleep(500 * time.Millisecond)
		return localStats(t, c.Endpoints()[0]).Requests == before
	}
	poll(t, 20*time.Second, "the waiters' last question", func() error {
		if !quiet() {
			return errors.New("they still ask")
		}
		return nil
	})
	before := localStats(t, c.Endpoints()[0])
	time.Sleep(2 * time.Second)
	if n := localStats(t, c.Endpoints()[0]).Requests - before.Requests; n != 0 {
		t.Errorf("%d requests while nothing happens", n)
	}
	release(t, h)
	release(t, granted(t, first))
	release(t, granted(t, second))
}

// kazoo#482, kazoo#282: an acquire hung for ever on a closed client, and after a
// reconnect.
func TestAcquireAfterCloseFailsAndAfterAnOutageWorks(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 1, nil)
	ctx := testContext(t, time.Minute)
	closed := dial(t, c.Endpoints())
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := lock.New(closed, "/lock").Acquire(ctx); !errors.Is(err, client.ErrClosed) {
			t.Errorf("acquire on a closed client: %v", err)
		}
		if _, err := lock.New(closed, "/lock").TryAcquire(ctx); !errors.Is(err, client.ErrClosed) {
			t.Errorf("a try on a closed client: %v", err)
		}
	}
	cl := dial(t, c.Endpoints())
	h := acquire(t, lock.New(cl, "/held"))
	for i := range 2 {
		if err := c.StopServer(0); err != nil {
			t.Fatal(err)
		}
		during := inQueue(ctx, lock.New(cl, "/lock"))
		if err := c.StartServer(0); err != nil {
			t.Fatal(err)
		}
		release(t, granted(t, during))
		release(t, acquire(t, lock.New(cl, "/lock")))
		if err := h.Verify(ctx); err != nil {
			t.Errorf("outage %d: the lock that was held: %v", i, err)
		}
	}
	release(t, h)
}

// libkv#156, go-zookeeper#20: a holder could not learn that its lock was gone.
func TestHolderIsToldOfEveryLossWithItsReason(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 3, shortSessions)
	ctx := testContext(t, time.Minute)
	px, addresses := proxies(t, c.Endpoints())
	admin := dial(t, c.Endpoints())
	cl := dial(t, addresses, client.WithSessionTimeout(2*time.Second), client.WithIdentity("holder"))
	for _, loss := range []struct {
		name   string
		reason error
		words  string // that a person needs
		act    func(h *lock.Handle)
	}{
		{"deleted", lock.ErrDeleted, "deleted", func(h *lock.Handle) {
			if err := admin.Delete(ctx, h.Node(), client.AnyVersion); err != nil {
				t.Error(err)
			}
		}},
		{"ended by another", client.ErrSessionExpired, string(client.Killed) + ": taken over", func(*lock.Handle) {
			cl = dial(t, addresses, client.WithSessionTimeout(2*time.Second), client.WithIdentity("holder"))
		}},
		{"silent", lock.ErrMargin, "not answered in time", func(*lock.Handle) {
			for _, p := range px {
				p.refuse.Store(true)
				p.cut()
			}
		}},
	} {
		h := acquire(t, lock.New(cl, "/lock"))
		loss.act(h)
		select {
		case <-h.Lost():
		case <-time.After(patience * 10 * time.Second):
			t.Fatalf("%s: not told", loss.name)
		}
		cause := context.Cause(h.Context())
		var e *lock.LostError
		if h.Held() || h.Context().Err() == nil || !errors.As(cause, &e) || e.Token != h.FencingToken() || !errors.Is(cause, loss.reason) || !strings.Contains(cause.Error(), loss.words) {
			t.Errorf("%s: held %v, cause %v", loss.name, h.Held(), cause)
		}
		var end *client.SessionError
		if errors.Is(cause, client.ErrSessionExpired) && (!errors.As(cause, &end) || end.Reason != client.Killed) {
			t.Errorf("%s: the session's end is %v", loss.name, cause)
		}
		release(t, acquire(t, lock.New(admin, "/lock")))
	}
}

// consul#5205: the end of a session told nobody who waited for what it held.
func TestEndOfTheHoldersSessionWakesTheNextAtOnce(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 3, nil)
	ctx := testContext(t, time.Minute)
	holder, next, watcher := dial(t, c.Endpoints()), dial(t, c.Endpoints()), dial(t, c.Endpoints())
	h := acquire(t, lock.New(holder, "/lock"))
	got := inQueue(ctx, lock.New(next, "/lock"))
	queueLength(ctx, t, watcher, "/lock", 2)
	events := follow(ctx, t, watcher, "/lock", client.Recursive())
	began := time.Now()
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	after := granted(t, got)
	if took := time.Since(began); took > holder.Session().Timeout()/2 {
		t.Errorf("the next one was granted after %s", took)
	}
	if after.FencingToken() <= h.FencingToken() {
		t.Errorf("token %s after %s", after.FencingToken(), h.FencingToken())
	}
	if ev := <-events; ev.Type != client.EventDeleted || ev.Path != h.Node() || ev.Session != holder.Session().ID() {
		t.Errorf("the watcher sees %+v", ev)
	}
}

// kazoo#730, go-zookeeper#65: numbers past 2^31 turned the order round.
func TestQueueKeepsItsOrderAcrossTheEndsOfNumbers(t *testing.T) {
	c := startLocal(t, 1, nil)
	ctx := testContext(t, time.Minute)
	watcher := dial(t, c.Endpoints())
	for i, start := range []uint64{1<<31 - 2, 1e10 - 2} {
		path := fmt.Sprintf("/lock-%d", i)
		must[client.Created](t)(watcher.Create(ctx, path, nil))
		// Nobody else uses this server's tree: what View lets do under its read
		// lock is safe here.
		c.Server(0).Node().Machine().View(func(v *fsm.View) {
			if err := v.Tree.SetSequence(path, start); err != nil {
				t.Fatal(err)
			}
		})
		var queue []<-chan grant
		for n := range 5 {
			queue = append(queue, inQueue(ctx, lock.New(dial(t, c.Endpoints()), path)))
			queueLength(ctx, t, watcher, path, n+1)
		}
		var last fence.Token
		for n, got := range queue {
			h := granted(t, got)
			if want := fmt.Sprintf("-lock-%010d", start+uint64(n)); h.Node()[len(h.Node())-len(want):] != want {
				t.Fatalf("contender %d stands at %s, want %s", n, h.Node(), want)
			}
			for later := n + 1; later < len(queue); later++ {
				if len(queue[later]) != 0 {
					t.Fatalf("contender %d was granted while %d holds", later, n)
				}
			}
			if h.FencingToken() <= last {
				t.Errorf("token %s after %s", h.FencingToken(), last)
			}
			last = h.FencingToken()
			release(t, h)
		}
	}
}

// kazoo PR#569: a contender of somebody else, without data, broke the recipe.
func TestForeignContenderWithoutDataIsRespected(t *testing.T) {
	c := startLocal(t, 1, nil)
	ctx := testContext(t, time.Minute)
	foreign, cl := dial(t, c.Endpoints()), dial(t, c.Endpoints())
	must[client.Created](t)(foreign.Create(ctx, "/lock", nil))
	mode := []client.CreateOption{client.WithEphemeral(), client.WithSequential()}
	must[client.Created](t)(foreign.Create(ctx, "/lock/lock-", nil, mode...))
	must[client.Created](t)(foreign.Create(ctx, "/lock/x__lock__", []byte{}, mode...))
	must[client.Created](t)(foreign.Create(ctx, "/lock/note", []byte{}))
	m := lock.New(cl, "/lock")
	var busy *lock.BusyError
	if _, err := m.TryAcquire(ctx); !errors.As(err, &busy) || busy.Holder.Node != "/lock/lock-0000000000" || busy.Error() == "" {
		t.Errorf("a try: %v", err)
	}
	info, err := m.Inspect(ctx)
	if err != nil || len(info.Holders) != 1 || len(info.Waiters) != 1 || info.Waiters[0].Pattern != lock.PatternKazoo {
		t.Errorf("inspect: %+v, %v", info, err)
	}
	got := inQueue(ctx, m)
	queueLength(ctx, t, foreign, "/lock", 4)
	if err := foreign.Close(); err != nil {
		t.Fatal(err)
	}
	release(t, granted(t, got))
}
