package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/recipes/lock"
)

// ClickHouse#116690: who came back with the id of an expired session silently
// got a new one, and believed that its ephemeral nodes and watches were there.
func TestExpiredSessionIsToldSoByEveryServer(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 3, shortSessions)
	ctx := testContext(t, time.Minute)
	watcher := dial(t, c.Endpoints())
	conn := connection(t, c.Endpoints()[0])
	life, die := context.WithCancel(ctx)
	stream, w, err := hello(life, conn, openHello(time.Second))
	if err != nil || w.GetError() != nil {
		t.Fatal(err, w.GetError())
	}
	create := &coordpb.Op{Kind: coordpb.Op_KIND_CREATE, Path: "/e", Node: coordpb.NodeKind_NODE_KIND_EPHEMERAL, Data: []byte{}}
	write := &coordpb.Request{Seq: 1, Write: &coordpb.Write{Ops: []*coordpb.Op{create}}}
	if err := stream.Send(&coordpb.SessionRequest{Requests: []*coordpb.Request{write}}); err != nil {
		t.Fatal(err)
	}
	if r, err := answerTo(stream, 0, 1); err != nil || r.GetError() != nil {
		t.Fatal(err, r.GetError())
	}
	die()
	if _, err := gone(ctx, watcher, "/e"); err != nil {
		t.Fatal(err)
	}
	if _, err := watcher.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	for i, endpoint := range c.Endpoints() {
		if err := c.Server(i).Node().Machine().WaitZxid(ctx, watcher.LastZxid()); err != nil {
			t.Fatal(err)
		}
		_, again, err := hello(ctx, connection(t, endpoint), attachHello(w, 2))
		if err != nil {
			t.Fatal(err)
		}
		if again.GetError().GetCode() != coordpb.Code_CODE_SESSION_EXPIRED || again.GetSessionId() != 0 || again.GetNextSeq() != 2 {
			t.Errorf("n%d takes an expired session back: %v", i+1, again)
		}
	}
	if n := localStats(t, c.Endpoints()[0]).Sessions; n != 1 {
		t.Errorf("%d sessions, want the watcher's", n)
	}
	_, fresh, err := hello(ctx, conn, openHello(time.Second))
	if err != nil || fresh.GetError() != nil || fresh.GetSessionId() <= w.GetSessionId() {
		t.Errorf("a new session, asked for as such: %v, %v", fresh, err)
	}
}

// etcd#15247, etcd#12528: a leader that was stopped for longer than a timeout
// took, when it went on, everybody for dead whom it had not heard meanwhile.
func TestLeaderThatWasStoppedExpiresNobody(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	ctx := testContext(t, time.Minute)
	const timeout = 4 * time.Second
	living := liveSessions(ctx, t, c.endpoints(), 12, timeout)
	lead := c.leader()
	lead.signal(syscall.SIGSTOP)
	time.Sleep(timeout + 2*time.Second) // real time is the subject
	checkLive(ctx, t, living, "while the former leader is stopped")
	lead.signal(syscall.SIGCONT)
	time.Sleep(timeout + time.Second)
	checkLive(ctx, t, living, "after the former leader has gone on")
	c.waitReady(20 * time.Second)
	c.sameDigests()
}

// etcd#2660: all that depended on a timeout went at the first moment of a new
// leader, as nobody could renew anything during the election. What is lost of
// the timeout here is what the client itself must give up (see Deadline).
func TestTimeWithoutQuorumEndsNoSession(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	ctx := testContext(t, time.Minute)
	living := liveSessions(ctx, t, c.endpoints(), 50, 10*time.Second)
	lead := c.leader()
	stopped := []*process{lead, c.follower()}
	for _, p := range stopped {
		p.signal(syscall.SIGSTOP)
	}
	time.Sleep(5 * time.Second)
	for _, p := range stopped {
		p.signal(syscall.SIGCONT)
	}
	c.waitReady(20 * time.Second)
	time.Sleep(2 * time.Second) // a leader that wanted to expire them would have
	checkLive(ctx, t, living, "after a time without quorum")
}

// liveSessions opens sessions that each own an ephemeral node.
func liveSessions(ctx context.Context, t *testing.T, endpoints []string, n int, timeout time.Duration) (all []*client.Client) {
	t.Helper()
	for i := range n {
		cl := dial(t, endpoints, client.WithSessionTimeout(timeout))
		if _, err := cl.Create(ctx, fmt.Sprintf("/alive-%d", i), nil, client.WithEphemeral()); err != nil {
			t.Fatal(err)
		}
		all = append(all, cl)
	}
	return all
}

func checkLive(ctx context.Context, t *testing.T, all []*client.Client, when string) {
	t.Helper()
	for i, cl := range all {
		if s := cl.Session().State(); s == client.Expired {
			t.Fatalf("%s: session %d: %v", when, i, context.Cause(cl.Session().Context()))
		}
		st, there, err := cl.Exists(ctx, fmt.Sprintf("/alive-%d", i))
		if err != nil || !there || st.EphemeralOwner != cl.Session().ID() {
			t.Fatalf("%s: /alive-%d: there %v, owner %s, %v", when, i, there, st.EphemeralOwner, err)
		}
	}
}

// ZOOKEEPER-2355: an ephemeral node outlived its session on a follower that had
// failed at the wrong moment.
func TestFollowerThatDiesWhileSessionsEndKeepsNoOrphan(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	ctx := testContext(t, 2*time.Minute)
	r := rand.New(rand.NewPCG(seed.New(t), 1))
	owner := dial(t, c.endpoints())
	if _, err := owner.Create(ctx, "/dir", nil); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { endSessions(ctx, t, owner, 12) })
		}
		victim := c.follower()
		time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond)
		victim.kill()
		wg.Wait()
		victim.start()
		c.waitReady(20 * time.Second)
	}
	names, err := owner.Children(ctx, "/dir")
	if err != nil || len(names) != 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
	c.sameDigests()
	for _, p := range c.nodes {
		if st := p.stats(t); st.Sessions != 1 {
			t.Errorf("%s has %d sessions", p.name, st.Sessions)
		}
	}
}

// endSessions opens and closes sessions that own nodes in /dir.
func endSessions(ctx context.Context, t *testing.T, cl *client.Client, times int) {
	for range times {
		s, err := cl.NewSession(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		for range 3 {
			if _, err := s.Client().Create(ctx, "/dir/e-", nil, client.WithEphemeral(), client.WithSequential()); err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

// ZOOKEEPER-4508: a client that could reach no server never learned that its
// session was over, and its calls waited for ever.
func TestClientWithoutAnyServerLearnsOfItsEndAtItsOwnDeadline(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 3, shortSessions)
	ctx := testContext(t, time.Minute)
	px, addresses := proxies(t, c.Endpoints())
	watcher := dial(t, c.Endpoints())
	acquire(t, lock.New(watcher, "/lock"))
	const timeout = 2 * time.Second
	states := make(chan client.State, 16)
	cl := dial(t, addresses, client.WithSessionTimeout(timeout), client.WithStateListener(func(s client.State) { states <- s }))
	blocked, waiting := make(chan error, 3), make(chan error, 1)
	go func() { _, err := lock.New(cl, "/lock").Acquire(ctx); waiting <- err }()
	queueLength(ctx, t, watcher, "/lock", 2)
	for _, p := range px {
		p.refuse.Store(true)
		p.cut()
	}
	deadline := cl.Session().Deadline() // a heartbeat under way may still move it
	go func() { _, err := cl.Get(ctx, "/"); blocked <- err }()
	go func() { _, err := cl.Set(ctx, "/lock", nil, client.AnyVersion); blocked <- err }()
	go func() {
		for _, err := range cl.Watch(ctx, "/") {
			blocked <- err
		}
	}()
	<-cl.Session().Context().Done()
	if early := time.Until(deadline); early > 0 {
		t.Errorf("over %s before the deadline", early)
	}
	if late := time.Since(deadline); late > timeout {
		t.Errorf("over %s after the deadline", late)
	}
	for range cap(blocked) {
		if err := <-blocked; !errors.Is(err, client.ErrSessionExpired) {
			t.Errorf("a blocked call ends with %v", err)
		}
	}
	// A place in a queue is given up a margin before the deadline.
	if err := <-waiting; !errors.Is(err, lock.ErrLost) {
		t.Errorf("the wait for a lock ends with %v", err)
	}
	for last := client.Connecting; last != client.Expired; {
		last = <-states
	}
	// Nothing brings the session back.
	for _, p := range px {
		p.refuse.Store(false)
	}
	if _, err := cl.Get(ctx, "/"); !errors.Is(err, client.ErrSessionExpired) || cl.Session().State() != client.Expired {
		t.Errorf("after the end: %v, %s", err, cl.Session().State())
	}
	if s, err := cl.NewSession(ctx); err != nil || s.ID() <= cl.Session().ID() {
		t.Errorf("a new session, asked for as such: %v", err)
	}
}

// kazoo PR#534: a deadline that had passed became a negative time to wait.
func TestCallWhoseTimeIsOverEndsAtOnce(t *testing.T) {
	c := startLocal(t, 1, nil)
	var jump atomic.Int64
	began := time.Now()
	clock := func() time.Duration { return time.Since(began) + time.Duration(jump.Load()) }
	cl := dial(t, c.Endpoints(), client.WithClock(clock))
	m := lock.New(cl, "/lock")
	h := acquire(t, m)
	past, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Hour))
	defer cancel()
	for name, f := range map[string]func() error{
		"get":     func() error { _, err := cl.Get(past, "/"); return err },
		"set":     func() error { _, err := cl.Set(past, "/", nil, client.AnyVersion); return err },
		"settled": func() error { _, err := cl.WriteSettled(past, client.OpSet("/", nil, client.AnyVersion)); return err },
		"sync":    func() error { _, err := cl.Sync(past); return err },
		"acquire": func() error { _, err := m.Acquire(past); return err },
		"try":     func() error { _, err := m.TryAcquire(past); return err },
		"session": func() error { _, err := cl.NewSession(past); return err },
		"dial":    func() error { _, err := client.Dial(past, c.Target()); return err },
		"watch": func() (err error) {
			for _, err = range cl.Watch(past, "/") {
			}
			return err
		},
	} {
		start := time.Now()
		if err := f(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(start); took > patience*3*time.Second {
			t.Errorf("%s took %s", name, took)
		}
	}
	if err := h.Verify(t.Context()); err != nil {
		t.Errorf("the lock: %v", err)
	}
	jump.Store(int64(time.Hour)) // the process did not run, and the deadline is far behind
	if h.Held() || h.Remaining() != 0 || cl.Session().State() != client.Expired {
		t.Errorf("held %v, %s remain, session %s", h.Held(), h.Remaining(), cl.Session().State())
	}
	if _, err := cl.Get(t.Context(), "/"); !errors.Is(err, client.ErrSessionExpired) {
		t.Errorf("a call after the deadline: %v", err)
	}
}

// etcd PR#13932: a sign of life that came to another server than the one that
// had opened the session, before that had applied it, was answered "expired".
func TestSignOfLifeRightAfterOpenIsNeverAnsweredExpired(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 3, nil)
	ctx := testContext(t, time.Minute)
	leader := localLeader(t, c)
	opener, other := connection(t, c.Endpoints()[leader]), connection(t, c.Endpoints()[(leader+1)%3])
	for i := range 20 {
		catchUp := func() {}
		if i%2 == 0 {
			catchUp = lag(t, c, (leader+1)%3)
		}
		_, w, err := hello(ctx, opener, openHello(10*time.Second))
		if err != nil || w.GetError() != nil {
			t.Fatal(err, w.GetError())
		}
		beats, err := coordpb.NewCoordClient(other).Heartbeat(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := beats.Send(&coordpb.HeartbeatRequest{SessionId: w.GetSessionId(), Secret: w.GetSecret(), Connection: 1, Number: 1}); err != nil {
			t.Fatal(err)
		}
		attached := make(chan *coordpb.Welcome, 1)
		go func() {
			_, again, err := hello(ctx, other, attachHello(w, 2))
			if err != nil {
				t.Error(err)
			}
			attached <- again
		}()
		if m, err := beats.Recv(); err != nil || over(m.GetError().GetCode()) {
			t.Fatalf("sign of life elsewhere: %v, %v", m, err)
		}
		select {
		case again := <-attached:
			if i%2 == 0 {
				t.Fatalf("a server that has not applied the session says %v", again)
			}
			attached <- again
		case <-time.After(20 * time.Millisecond):
		}
		catchUp()
		if again := <-attached; again.GetError() != nil || again.GetSessionId() != w.GetSessionId() {
			t.Fatalf("the session cannot move to another server: %v", again)
		}
	}
}

// over says whether a code tells a client that its session has ended.
func over(code coordpb.Code) bool {
	return code == coordpb.Code_CODE_SESSION_EXPIRED || code == coordpb.Code_CODE_SESSION_CLOSED || code == coordpb.Code_CODE_UNKNOWN_SESSION
}

// kafka#5575, pulsar#913: a restarted process took the node of its predecessor
// for its own and lost it when the old session expired.
func TestRestartedProcessRegistersAtOnceAndStays(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 3, shortSessions)
	ctx := testContext(t, time.Minute)
	px, addresses := proxies(t, c.Endpoints())
	const timeout = 2 * time.Second
	opts := []client.Option{client.WithSessionTimeout(timeout), client.WithIdentity("worker-7")}
	old := dial(t, addresses, opts...)
	if _, err := old.Create(ctx, "/member", nil, client.WithEphemeral()); err != nil {
		t.Fatal(err)
	}
	for _, p := range px { // as the death of the process does
		p.refuse.Store(true)
		p.cut()
	}
	next := dial(t, c.Endpoints(), opts...)
	made, err := next.Create(ctx, "/member", nil, client.WithEphemeral())
	if err != nil || made.Stat.EphemeralOwner != next.Session().ID() {
		t.Fatalf("registering at once: owner %s, %v", made.Stat.EphemeralOwner, err)
	}
	for end := time.Now().Add(2 * timeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		st, there, err := next.Exists(ctx, "/member")
		if err != nil || !there || st.Czxid != made.Stat.Czxid {
			t.Fatalf("the registration: there %v, %+v, %v", there, st, err)
		}
	}
	// Without an identity the predecessor's node is in the way and says whose it is.
	stranger := dial(t, c.Endpoints())
	if _, err := stranger.Create(ctx, "/member", nil, client.WithEphemeral()); !errors.Is(err, client.ErrNodeExists) {
		t.Errorf("a stranger: %v", err)
	}
	if st, _, err := stranger.Exists(ctx, "/member"); err != nil || st.EphemeralOwner == stranger.Session().ID() {
		t.Errorf("the node says that it is the stranger's: %v", err)
	}
}

// kazoo commit 89e0660: a stream of large answers left no room for signs of
// life, and the session expired while it was busy.
func TestLargeAnswersDoNotHoldUpHeartbeats(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 1, nil)
	ctx := testContext(t, 2*time.Minute)
	const names, pipeline, timeout = 50_000, 32, 2 * time.Second
	writer := dial(t, c.Endpoints())
	fill(ctx, t, writer, "/huge", names)
	cl := dial(t, c.Endpoints(), client.WithSessionTimeout(timeout), client.WithReads(client.ReadSession))
	until := time.Now().Add(3 * timeout)
	var lists atomic.Int64
	var wg sync.WaitGroup
	for range pipeline {
		wg.Go(func() {
			for time.Now().Before(until) {
				got, err := cl.Children(ctx, "/huge")
				if err != nil || len(got) != names {
					t.Errorf("%d names, %v", len(got), err)
					return
				}
				lists.Add(1)
			}
		})
	}
	least := timeout
	for ; time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		least = min(least, time.Until(cl.Session().Deadline()))
	}
	wg.Wait()
	t.Logf("%d listings; the deadline was never nearer than %s", lists.Load(), least)
	if s := cl.Session().State(); s != client.Connected || least <= 0 || lists.Load() < pipeline {
		t.Errorf("the session is %s", s)
	}
}

// fill makes a node with so many children.
func fill(ctx context.Context, t *testing.T, c *client.Client, dir string, children int) {
	t.Helper()
	if _, err := c.Create(ctx, dir, nil); err != nil {
		t.Fatal(err)
	}
	const most = 4000
	for from := 0; from < children; from += most {
		var ops []client.Op
		for i := from; i < min(children, from+most); i++ {
			ops = append(ops, client.OpCreate(fmt.Sprintf("%s/child-%06d", dir, i), nil))
		}
		if _, err := c.Txn(ctx, ops...); err != nil {
			t.Fatal(err)
		}
	}
}
