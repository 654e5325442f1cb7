package test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/client"
)

// expirySlack is how late a session may end on a busy machine. docs/performance.md
// has what is measured; the design's bound is timeout + 1 % + report + round +
// commit.
const expirySlack = 5 * time.Second

// mortal is a session that is about to be cut off, with an ephemeral znode.
type mortal struct {
	c       *client.Client
	px      []*proxy
	path    string
	timeout time.Duration
	expired chan time.Time // when the client's own context ended
}

func newMortal(t *testing.T, c *processes, path string, timeout time.Duration) *mortal {
	t.Helper()
	px, addresses := proxies(t, c.endpoints())
	m := &mortal{px: px, path: path, timeout: timeout, expired: make(chan time.Time, 1)}
	m.c = dial(t, addresses, client.WithSessionTimeout(timeout))
	if got := m.c.Session().Timeout(); got != timeout {
		t.Fatalf("timeout %s was granted, want %s", got, timeout)
	}
	if _, err := m.c.Create(t.Context(), path, nil, client.WithEphemeral()); err != nil {
		t.Fatal(err)
	}
	context.AfterFunc(m.c.Session().Context(), func() { m.expired <- time.Now() })
	return m
}

// cut takes the client off the network and returns its deadline as it knows it.
func (m *mortal) cut() time.Time {
	for _, p := range m.px {
		p.refuse.Store(true)
		p.mute.Store(true)
		p.cut()
	}
	return m.c.Session().Deadline()
}

// gone waits until the znode has gone.
func gone(ctx context.Context, c *client.Client, path string) (time.Time, error) {
	for {
		_, there, err := c.Exists(ctx, path)
		if err != nil {
			return time.Time{}, fmt.Errorf("%s: %w", path, err)
		}
		if !there {
			return time.Now(), nil
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestSessionEndsNeitherEarlyNorMuchTooLate(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	watcher := dial(t, c.endpoints())
	var wg sync.WaitGroup
	for i, timeout := range []time.Duration{2 * time.Second, 3 * time.Second, 5 * time.Second, 10 * time.Second} {
		m := newMortal(t, c, fmt.Sprintf("/mortal-%d", i), timeout)
		wg.Go(func() { checkEnd(t, watcher, m) })
	}
	wg.Wait()
}

// checkEnd cuts the session off and checks the order: the client knows first,
// then the cluster ends it, within the bound.
func checkEnd(t *testing.T, watcher *client.Client, m *mortal) {
	deadline := m.cut()
	cutAt := time.Now()
	ended, err := gone(t.Context(), watcher, m.path)
	if err != nil {
		t.Error(err)
		return
	}
	if ended.Before(deadline) {
		t.Errorf("%s: ended %s before the client's deadline", m.path, deadline.Sub(ended))
	}
	if late := ended.Sub(cutAt) - m.timeout; late > expirySlack {
		t.Errorf("%s: ended %s after its timeout of %s", m.path, late, m.timeout)
	}
	select {
	case knew := <-m.expired:
		if knew.After(ended) {
			t.Errorf("%s: the client learned of the loss %s after it", m.path, knew.Sub(ended))
		}
	default:
		t.Errorf("%s: the client did not learn of the loss before it", m.path)
	}
	if _, err := m.c.Get(t.Context(), "/"); !errors.Is(err, client.ErrSessionExpired) {
		t.Errorf("%s: a read after the end gives %v", m.path, err)
	}
	t.Logf("timeout %s: ended %s after the cut", m.timeout, ended.Sub(cutAt))
}

const (
	// electedTimeout is the timeout of the sessions that live or die through
	// elections.
	electedTimeout = 8 * time.Second
	// electedReign is how long a leader is left alone. With the time that an
	// election takes, there is one every half timeout.
	electedReign = electedTimeout * 45 / 100
	// electedBound is how late a session may end through such elections. The
	// leadership in which its client dies may be over before anybody notices; the
	// next two find it silent for 2/5 and then 3/8 of the timeout, the third for
	// the rest. To that comes the time without a leader, and a busy machine.
	electedBound = electedTimeout*2 + 6*time.Second
)

func TestElectionsNeitherKillTheLivingNorKeepTheDead(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	watcher := dial(t, c.endpoints())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var living []*client.Client
	for i := range 20 {
		cl := dial(t, c.endpoints(), client.WithSessionTimeout(electedTimeout))
		if _, err := cl.Create(ctx, fmt.Sprintf("/living-%d", i), nil, client.WithEphemeral()); err != nil {
			t.Fatal(err)
		}
		living = append(living, cl)
	}
	dead := newMortal(t, c, "/dead", electedTimeout)
	dead.cut()
	start := time.Now()
	endOfDead := make(chan error, 1)
	go func() {
		_, err := gone(ctx, watcher, dead.path)
		endOfDead <- err
	}()
	elections := 0
	for waiting := true; waiting; elections++ { // for as long as it takes
		lead := c.leader()
		lead.kill()
		lead.start()
		c.leader()
		select {
		case err := <-endOfDead:
			if err != nil {
				t.Fatal(err)
			}
			waiting = false
		case <-time.After(electedReign):
			c.waitReady(20 * time.Second)
		}
	}
	took := time.Since(start)
	t.Logf("the dead session ended after %s and %d elections", took, elections)
	if elections < 2 || took > electedBound {
		t.Errorf("the dead session ended after %s, at most %s, and %d elections", took, electedBound, elections)
	}
	for i, cl := range living {
		if s := cl.Session().State(); s == client.Expired {
			t.Errorf("living session %d: %v", i, context.Cause(cl.Session().Context()))
		}
		if _, there, err := cl.Exists(ctx, fmt.Sprintf("/living-%d", i)); err != nil || !there {
			t.Errorf("living-%d: there %v, %v", i, there, err)
		}
	}
}

func TestRestartOfAllServersKeepsStateAndSessions(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cl := dial(t, c.endpoints(), client.WithSessionTimeout(20*time.Second))
	for i := range 100 {
		if _, err := cl.Create(ctx, "/n-", fmt.Appendf(nil, "%d", i), client.WithSequential(), client.WithEphemeral()); err != nil {
			t.Fatal(err)
		}
	}
	id := cl.Session().ID()
	before, err := cl.Children(ctx, "/")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for _, p := range c.nodes {
			p.kill()
		}
		for _, p := range c.nodes {
			p.start()
		}
		c.waitReady(30 * time.Second)
		after, err := cl.Children(ctx, "/")
		if err != nil {
			t.Fatalf("the session did not survive: %v", err)
		}
		if fmt.Sprint(before) != fmt.Sprint(after) {
			t.Fatalf("children before and after: %v, %v", before, after)
		}
		c.sameDigests()
	}
	if cl.Session().ID() != id {
		t.Error("the session has another id")
	}
	other := dial(t, c.endpoints())
	if other.Session().ID() <= id {
		t.Errorf("a new session has id %s, which is not above %s", other.Session().ID(), id)
	}
}

func TestSessionEndIsOneTransaction(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 1, "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	owner := dial(t, c.endpoints())
	for i := range 50 {
		if _, err := owner.Create(ctx, fmt.Sprintf("/e%02d", i), nil, client.WithEphemeral()); err != nil {
			t.Fatal(err)
		}
	}
	watcher := dial(t, c.endpoints())
	ready := make(chan struct{})
	zxids := make(chan map[client.Zxid]int, 1)
	go func() {
		seen := map[client.Zxid]int{}
		n := 0
		for ev, err := range watcher.Watch(ctx, "/", client.Recursive(), client.Initial(client.ReadDefault)) {
			if err != nil {
				t.Error(err)
				break
			}
			if ev.Type == client.EventPresent || ev.Type == client.EventAbsent {
				close(ready)
				continue
			}
			if strings.HasPrefix(ev.Path, "/zookeeper/") {
				continue // the servers write there
			}
			seen[ev.Zxid]++
			if n++; n == 50 {
				break
			}
		}
		zxids <- seen
	}()
	<-ready
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	if seen := <-zxids; len(seen) != 1 {
		t.Errorf("the end of the session took %d transactions: %v", len(seen), seen)
	}
}
