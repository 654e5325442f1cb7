package test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/test/internal/child"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/zxid"
)

// zkRider is a client that watches znodes as applications do, with watches that
// fire once: it reads with a watch, and reads again when it is told of a change.
// When its server dies it goes on with its session at another one and sets its
// watches with setWatches2.
type zkRider struct {
	hosts   []string
	at      int
	timeout time.Duration
	mine    string // an ephemeral

	mu       sync.Mutex // guards below; held during a step
	l        *zkLink
	seen     map[string]int64   // version of the data of what is watched; -1: not there
	children map[string]zxid.ID // pzxid of what is listed
	moves    int
}

const zkRiderTimeout = 2 * time.Second // the shortest that servers grant

// setUp opens a session and watches everything.
func (r *zkRider) setUp(paths, folders []string) (err error) {
	if r.l, err = zkLinkAny(r.hosts, r.at, r.timeout, nil); err != nil {
		return err
	}
	if _, err = r.l.one(zkCreate(r.mine, "", wire.FlagEphemeral)); err != nil {
		return err
	}
	r.seen, r.children = map[string]int64{}, map[string]zxid.ID{}
	for _, p := range paths {
		if err := r.look(p); err != nil {
			return err
		}
	}
	for _, p := range folders {
		if err := r.list(p); err != nil {
			return err
		}
	}
	return nil
}

// look reads a znode that may be missing, with a watch.
func (r *zkRider) look(path string) error {
	rs, err := r.l.call(r.patience(), zkRead(wire.Exists, path, true))
	if err != nil {
		return err
	}
	switch version := rs[0].Stat.Version; {
	case rs[0].Err == wire.NoNode:
		r.seen[path] = -1
	case rs[0].Err != wire.OK:
		return fmt.Errorf("exists %s: %w", path, rs[0].Err)
	default:
		r.seen[path] = version
	}
	return nil
}

func (r *zkRider) list(path string) error {
	rs, err := r.l.call(r.patience(), zkRead(wire.GetChildren2, path, true))
	if err != nil {
		return err
	}
	if rs[0].Err != wire.OK {
		return fmt.Errorf("children of %s: %w", path, rs[0].Err)
	}
	r.children[path] = rs[0].Stat.Pzxid
	return nil
}

// patience is when a client gives up a server that does not answer.
func (r *zkRider) patience() time.Duration { return r.timeout * 2 / 3 }

// alive says whether the session's ephemeral is there, and is its own.
func (r *zkRider) alive() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rs, err := r.l.call(r.patience(), zkRead(wire.Exists, r.mine, false))
	if err != nil {
		return err
	}
	if rs[0].Err != wire.OK || rs[0].Stat.EphemeralOwner != r.l.session {
		return fmt.Errorf("%s: %w, of %s", r.mine, rs[0].Err, rs[0].Stat.EphemeralOwner)
	}
	return nil
}

// step takes what has happened for a moment.
func (r *zkRider) step() error {
	for len(r.l.events) > 0 {
		e := r.l.events[0]
		r.l.events = r.l.events[1:]
		act := r.look
		if e.Type == wire.EventChildren {
			act = r.list
		}
		if err := act(e.Path); err != nil {
			r.l.events = append(r.l.events, e) // its watch is gone: look again when connected
			return err
		}
	}
	_, err := r.l.call(r.patience(), zkPing)
	return err
}

// run rides until stop.
func (r *zkRider) run(stop <-chan struct{}) error {
	for !isDone(stop) {
		if err := r.stepOrMove(); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func (r *zkRider) stepOrMove() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.step() == nil {
		return nil
	}
	return r.move()
}

// move goes on at another server. What was changed since is told by the answer to
// setWatches2; what could not be read again is asked for anew.
func (r *zkRider) move() error {
	r.at++
	r.moves++
	again := r.l.events
	r.l.net.Close()
	next, err := zkLinkAny(r.hosts, r.at, r.timeout, r.l)
	if err != nil {
		return err
	}
	r.l = next
	q := wire.Request{Op: wire.Op{Type: wire.SetWatches2}, Since: r.l.last}
	for path, version := range r.seen {
		if version < 0 {
			q.Watches[wire.ListExists] = append(q.Watches[wire.ListExists], path)
		} else {
			q.Watches[wire.ListData] = append(q.Watches[wire.ListData], path)
		}
	}
	for path := range r.children {
		q.Watches[wire.ListChildren] = append(q.Watches[wire.ListChildren], path)
	}
	if _, err := r.l.call(r.patience(), q); err != nil {
		r.l.events = again
		return r.move()
	}
	r.l.events = append(r.l.events, again...)
	return nil
}

// zkChanges is the full history: one client that changes what the riders watch.
type zkChanges struct {
	paths, folders []string
	version        map[string]int64 // of the data; -1: not there
	n              int
}

func (h *zkChanges) run(link *zkLink, rnd *rand.Rand, stop <-chan struct{}) error {
	for !isDone(stop) {
		path := h.paths[rnd.IntN(len(h.paths))]
		q := zkSet(path, strconv.Itoa(h.n), -1)
		switch {
		case h.version[path] < 0:
			q = zkCreate(path, "", 0)
		case rnd.IntN(4) == 0:
			q = zkDelete(path, -1)
		}
		if _, err := link.one(q); err != nil {
			return err
		}
		switch q.Type {
		case wire.SetData:
			h.version[path]++
		case wire.Delete:
			h.version[path] = -1
		default:
			h.version[path] = 0
		}
		h.n++
		time.Sleep(time.Duration(rnd.IntN(3000)) * time.Microsecond)
	}
	return nil
}

// check compares what a rider has seen with what is there.
func (h *zkChanges) check(r *zkRider, pzxids map[string]zxid.ID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, want := range h.version {
		if r.seen[path] != want {
			return fmt.Errorf("%s: seen version %d, it is %d", path, r.seen[path], want)
		}
	}
	for path, want := range pzxids {
		if r.children[path] != want {
			return fmt.Errorf("children of %s: seen as of %s, they are of %s", path, r.children[path], want)
		}
	}
	return nil
}

// TestRidersThroughKillsMissNothing: sessions with the shortest timeout go on at
// another server when theirs is killed, with their ephemerals; their watches miss
// nothing; and the session of a client that is really gone does end.
func TestRidersThroughKillsMissNothing(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	const riders, kills = 12, 5
	s := seed.New(t)
	c := startProcesses(t, 3, "")
	h := &zkChanges{version: map[string]int64{}, folders: []string{"/f0", "/f1"}}
	setup := zkOpen(t, c.nodes[0].zookeeper())
	for _, f := range h.folders {
		setup.must(zkCreate(f, "", 0))
		for i := range 8 {
			path := fmt.Sprintf("%s/n%d", f, i)
			h.paths, h.version[path] = append(h.paths, path), -1
		}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	var writer, wg sync.WaitGroup
	all := make([]*zkRider, riders)
	for i := range all {
		r := &zkRider{hosts: c.zkAddresses(), at: i, timeout: zkRiderTimeout, mine: fmt.Sprintf("/mine%d", i)}
		if err := r.setUp(h.paths, h.folders); err != nil {
			t.Fatal(err)
		}
		all[i] = r
		wg.Go(func() {
			if err := r.run(done); err != nil {
				t.Errorf("rider %d, %d moves: %v", i, r.moves, err)
			}
		})
	}
	dead := zkDial(t, c.nodes[1].zookeeper())
	dead.hello(&wire.ConnectRequest{Timeout: zkRiderTimeout})
	dead.must(zkCreate("/dead", "", wire.FlagEphemeral))
	// The writer's own server is not killed: what it writes has a known outcome.
	link, err := zkLinkTo(c.nodes[2].zookeeper(), 20*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	writer.Go(func() {
		if err := h.run(link, rand.New(rand.NewPCG(s, 1)), stop); err != nil {
			t.Errorf("after %d changes: %v", h.n, err)
		}
	})
	for i := range kills {
		time.Sleep(300 * time.Millisecond)
		victim := c.nodes[i%2]
		victim.kill()
		time.Sleep(time.Duration(i%3) * 300 * time.Millisecond)
		victim.start()
		poll(t, 30*time.Second, "ready again", victim.ready)
	}
	close(stop)
	writer.Wait()
	h.checkAll(t, link, all)
	close(done)
	wg.Wait()
	moves := 0
	for i, r := range all {
		moves += r.moves
		p, err := r.l.one(zkRead(wire.Exists, r.mine, false))
		if err != nil || p.Stat.EphemeralOwner != r.l.session {
			t.Errorf("rider %d: its ephemeral: %+v, %v", i, p.Stat, err)
		}
	}
	if moves < riders/2 || h.n < 100 {
		t.Errorf("%d moves and %d changes show little", moves, h.n)
	}
	t.Logf("%d changes, %d moves", h.n, moves)
	c.waitGone(t, "/dead", zkRiderTimeout+expirySlack)
}

// checkAll waits until every rider knows the end of the history.
func (h *zkChanges) checkAll(t *testing.T, link *zkLink, all []*zkRider) {
	t.Helper()
	pzxids := map[string]zxid.ID{}
	for _, f := range h.folders {
		r, err := link.one(zkRead(wire.Exists, f, false))
		if err != nil {
			t.Fatal(err)
		}
		pzxids[f] = r.Stat.Pzxid
	}
	for i, r := range all {
		poll(t, 20*time.Second, fmt.Sprintf("rider %d knows the end of the history", i), func() error { return h.check(r, pzxids) })
	}
}

// waitGone waits until an ephemeral has gone with its session, which is promised
// within the limit.
func (c *processes) waitGone(t *testing.T, path string, limit time.Duration) {
	t.Helper()
	child.Poll(t, limit, "the end of the session of a client that is gone", func() error {
		l, err := zkLinkAny(c.zkAddresses(), 0, 10*time.Second, nil)
		if err != nil {
			return err
		}
		defer l.net.Close()
		rs, err := l.call(zkPatient, zkSyncRoot, zkRead(wire.Exists, path, false))
		if err == nil && rs[1].Err != wire.NoNode {
			err = errors.New("its ephemeral is there")
		}
		return err
	})
}
