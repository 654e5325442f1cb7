package test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/election"
	"github.com/coordd/coord/recipes/lock"
)

// reigns records who believes to lead, and when. A leadership is over for its
// leader once its context is done.
type reigns struct {
	t       *testing.T
	mu      sync.Mutex
	now     string // who leads, "" for nobody
	tokens  []fence.Token
	leaders []string
}

// begin takes down a leadership and fails if somebody else still believes in his.
func (r *reigns) begin(who string, l *election.Leadership) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != "" {
		r.t.Errorf("%s leads while %s does", who, r.now)
	}
	if n := len(r.tokens); n > 0 && l.FencingToken() <= r.tokens[n-1] {
		r.t.Errorf("%s leads with token %s after %s", who, l.FencingToken(), r.tokens[n-1])
	}
	r.now, r.tokens, r.leaders = who, append(r.tokens, l.FencingToken()), append(r.leaders, who)
}

func (r *reigns) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = ""
}

func (r *reigns) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.leaders)
}

// standing runs a candidate until ctx ends; work is done as the leader, after which
// it gives up.
func (r *reigns) standing(ctx context.Context, c *client.Client, path, who string, work func(ctx context.Context, l *election.Leadership)) {
	err := election.New(c, path).Run(ctx, []byte(who), func(ctx context.Context, l *election.Leadership) error {
		r.begin(who, l)
		defer r.end()
		work(ctx, l)
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		r.t.Errorf("%s: %v", who, err)
	}
}

// curator#1211: all servers were down for longer than the session; when they came
// back the client went on as the leader by the node of its old session, which was
// about to go, and another led as soon as it had gone.
func TestLeaderDoesNotGoOnByTheNodeOfAnOldSession(t *testing.T) {
	skipIfShort(t)
	const timeout = 2 * time.Second
	c := startProcesses(t, 3, "")
	ctx, cancel := context.WithCancel(testContext(t, 2*time.Minute))
	r := &reigns{t: t}
	var wg sync.WaitGroup
	stand := func(who string) {
		cl := dial(t, c.endpoints(), client.WithSessionTimeout(timeout), quiet)
		wg.Go(func() {
			r.standing(ctx, cl, "/election", who, func(ctx context.Context, l *election.Leadership) {
				st, ok, err := l.Session().Client().Exists(ctx, l.Node())
				if ctx.Err() == nil && (err != nil || !ok || st.EphemeralOwner != l.Session().ID()) {
					t.Errorf("%s leads by %s of session %s in session %s: %v", who, l.Node(), st.EphemeralOwner, l.Session().ID(), err)
				}
				<-ctx.Done()
			})
		})
	}
	stand("a")
	for outage := range 3 {
		before := outage + 1
		poll(t, 30*time.Second, "a leader", func() error {
			if r.count() != before {
				return fmt.Errorf("%d leaderships", r.count())
			}
			return nil
		})
		for _, p := range c.nodes {
			p.signal(syscall.SIGKILL)
		}
		down := time.Now()
		poll(t, timeout+time.Second, "the leader's own end", func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.now != "" {
				return fmt.Errorf("%s believes to lead", r.now)
			}
			return nil
		})
		if took := time.Since(down); took > 2*timeout {
			t.Errorf("the leader believed so for %s, its session's timeout is %s", took, timeout)
		}
		time.Sleep(timeout) // an outage longer than the session: what is tested, not what is hoped for
		for _, p := range c.nodes {
			<-p.Done()
			p.start()
		}
		if outage == 0 {
			stand("b")
		}
		c.waitReady(30 * time.Second)
	}
	poll(t, 30*time.Second, "a leader again", func() error {
		if r.count() < 4 {
			return fmt.Errorf("%d leaderships", r.count())
		}
		return nil
	})
	cancel()
	wg.Wait()
	t.Logf("led: %v", r.leaders)
}

// etcd#21128: a campaign that failed left the candidate's node behind. Here the wait
// fails since the folder must not be read any more.
func TestFailedCampaignLeavesNoCandidate(t *testing.T) {
	c := startLocal(t, 1, nil)
	ctx := testContext(t, time.Minute)
	admin, leader, cl := dial(t, c.Endpoints()), dial(t, c.Endpoints()), dial(t, c.Endpoints())
	for round, fail := range map[string]func(first *election.Leadership, cancel func()) error{
		"permission": func(first *election.Leadership, _ func()) error {
			writeOnly := client.ACL{Perms: 0x1f &^ 1, Scheme: "world", ID: "anyone"}
			if _, err := admin.SetACL(ctx, "/election", []client.ACL{writeOnly}, client.AnyVersion); err != nil {
				return err
			}
			return first.Resign(ctx)
		},
		"cancelled": func(_ *election.Leadership, cancel func()) error { cancel(); return nil },
	} {
		first := must[*election.Leadership](t)(election.New(leader, "/election").Campaign(ctx, nil))
		waiting, cancel := context.WithCancel(ctx)
		failed := make(chan error, 1)
		go func() {
			l, err := election.New(cl, "/election").Campaign(waiting, nil)
			if l != nil {
				_ = l.Resign(ctx)
			}
			failed <- err
		}()
		candidates(ctx, t, admin, "/election", 2)
		if err := fail(first, cancel); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; !errors.Is(err, client.ErrNoAuth) && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the campaign ends with %v", round, err)
		}
		cancel()
		if _, err := admin.SetACL(ctx, "/election", []client.ACL{{Perms: 0x1f, Scheme: "world", ID: "anyone"}}, client.AnyVersion); err != nil && !errors.Is(err, client.ErrNoNode) {
			t.Fatal(err)
		}
		if err := first.Resign(ctx); err != nil {
			t.Error(err)
		}
		candidates(ctx, t, admin, "/election", 0)
	}
}

// TestCandidateWaitsOnWhenTheHistoryIsGone is the other case of etcd#21128: the
// leader gives up while the candidate is cut off, and no server knows of that change
// any more when it comes back.
func TestCandidateWaitsOnWhenTheHistoryIsGone(t *testing.T) {
	c := startLocal(t, 1, nil)
	ctx := testContext(t, time.Minute)
	px, addresses := proxies(t, c.Endpoints())
	leader, cl := dial(t, c.Endpoints()), dial(t, addresses)
	for _, resigns := range []bool{true, false} {
		first := must[*election.Leadership](t)(election.New(leader, "/election").Campaign(ctx, nil))
		won := make(chan *election.Leadership, 1)
		go func() {
			l, err := election.New(cl, "/election").Campaign(ctx, nil)
			if err != nil {
				t.Errorf("the candidate got %v", err)
			}
			won <- l
		}()
		candidates(ctx, t, leader, "/election", 2)
		for _, p := range px {
			p.refuse.Store(true)
			p.cut()
		}
		if resigns {
			if err := first.Resign(ctx); err != nil {
				t.Fatal(err)
			}
		}
		restart(t, c) // what a server remembers of changes is in its memory
		for _, p := range px {
			p.refuse.Store(false)
		}
		if !resigns {
			candidates(ctx, t, cl, "/election", 2) // it is back
			if err := first.Resign(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if l := <-won; l != nil {
			if err := l.Resign(ctx); err != nil {
				t.Error(err)
			}
		}
		candidates(ctx, t, leader, "/election", 0)
	}
}

// candidates waits until so many stand.
func candidates(ctx context.Context, t *testing.T, c *client.Client, path string, want int) {
	t.Helper()
	poll(t, 10*time.Second, "candidates", func() error {
		info, err := election.New(c, path).Candidates(ctx)
		if n := len(info.Holders) + len(info.Waiters); err == nil && n != want {
			err = fmt.Errorf("%d candidates, want %d", n, want)
		}
		return err
	})
}

// etcd#11777: an administrator deleted the candidate's node between its creation and
// the wait, and the campaign succeeded all the same. Here somebody deletes each node
// the moment he sees it.
func TestCandidateWithoutANodeNeverLeads(t *testing.T) {
	c := startLocal(t, 1, nil)
	ctx := testContext(t, time.Minute)
	admin, cl := dial(t, c.Endpoints()), dial(t, c.Endpoints())
	must[client.Created](t)(admin.Create(ctx, "/election", nil))
	watching, stop := context.WithCancel(ctx)
	deleted := make(chan int, 1)
	go func() {
		n := 0
		for e, err := range admin.Watch(watching, "/election", client.Recursive()) {
			if err == nil && e.Type == client.EventCreated && e.Stat.Kind == client.Ephemeral && admin.Delete(ctx, e.Path, client.AnyVersion) == nil {
				n++
			}
		}
		deleted <- n
	}()
	e := election.New(cl, "/election")
	won, failed := 0, 0
	for range 200 {
		l, err := e.Campaign(ctx, nil)
		if err != nil {
			if !errors.Is(err, lock.ErrLost) {
				t.Fatalf("a candidate whose node is deleted: %v", err)
			}
			failed++
			continue
		}
		won++
		select { // its node is deleted, or about to be
		case <-l.Lost():
		case <-time.After(patience * 10 * time.Second):
			t.Fatalf("it leads by %s, which is gone", l.Node())
		}
		if err := l.Resign(ctx); !errors.Is(err, lock.ErrLost) {
			t.Errorf("its end: %v", err)
		}
	}
	stop()
	t.Logf("%d campaigns were lost, %d leaders; %d nodes were deleted", failed, won, <-deleted)
	candidates(ctx, t, cl, "/election", 0)

	// A candidate behind a leader, with real time to wait.
	leader := must[*election.Leadership](t)(election.New(admin, "/election").Campaign(ctx, nil))
	outcome := make(chan error, 1)
	go func() { _, err := e.Campaign(ctx, nil); outcome <- err }()
	candidates(ctx, t, admin, "/election", 2)
	info := must[lock.Info](t)(e.Candidates(ctx))
	if err := admin.Delete(ctx, info.Waiters[0].Node, client.AnyVersion); err != nil {
		t.Fatal(err)
	}
	if err := <-outcome; !errors.Is(err, lock.ErrDeleted) {
		t.Errorf("a candidate that was deleted while it waited: %v", err)
	}
	if err := leader.Resign(ctx); err != nil {
		t.Error(err)
	}
}

// curator PR#446, PR#462: a leader that gave up did not come back to the queue, or
// not at its end. Three candidates give up a thousand times.
func TestLeaderThatGivesUpGoesToTheEndOfTheQueue(t *testing.T) {
	c := startLocal(t, 1, nil)
	times := 1000
	if testing.Short() {
		times = 90
	}
	ctx, cancel := context.WithCancel(testContext(t, 3*time.Minute))
	defer cancel()
	watcher := dial(t, c.Endpoints())
	r := &reigns{t: t}
	var wg sync.WaitGroup
	all := []string{"a", "b", "c"}
	for _, who := range all {
		cl := dial(t, c.Endpoints())
		wg.Go(func() {
			r.standing(ctx, cl, "/election", who, func(ctx context.Context, l *election.Leadership) {
				if r.count() >= times {
					cancel()
					return
				}
				for ctx.Err() == nil { // the others are back in the queue
					st, _, err := cl.Exists(ctx, "/election", client.Mode(client.ReadSession))
					if err == nil && int(st.NumChildren) == len(all)+1 { // and the leader's own znode
						return
					}
				}
			})
		})
	}
	wg.Wait()
	if len(r.leaders) < times {
		t.Fatalf("%d leaderships, want %d", len(r.leaders), times)
	}
	for i := len(all); i < times; i++ {
		if r.leaders[i] != r.leaders[i-len(all)] {
			t.Fatalf("leadership %d is that of %s: %v", i, r.leaders[i], r.leaders[i-len(all):i+1])
		}
	}
	candidates(context.WithoutCancel(ctx), t, watcher, "/election", 0)
}
