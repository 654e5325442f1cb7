package server

import (
	"fmt"
	"net"
	"testing"

	"github.com/coordd/coord/watch"
	"github.com/coordd/coord/wire"
)

// TestWatchesThatCannotBeSetAgainEndTheConnection: clients do not look at the code
// of the reply, and would wait for events that never come.
func TestWatchesThatCannotBeSetAgainEndTheConnection(t *testing.T) {
	c, _, _ := zkPipe(t, func(cfg *Config) { cfg.Limits.WatchesPerSession = 2 })
	again := wire.Request{Op: wire.Op{Type: wire.SetWatches}, Since: 1 << 40}
	again.Watches[wire.ListExists] = []string{"/1", "/2"}
	c.must(again)
	again.Watches[wire.ListExists] = []string{"/3"}
	c.send(again)
	c.ended()
}

// TestWatchOverTheLimitIsRefused, and what was read is not given as if it were
// watched.
func TestWatchOverTheLimitIsRefused(t *testing.T) {
	c, s, _ := zkPipe(t, func(cfg *Config) { cfg.Limits.WatchesPerSession = 2 })
	for i, want := range []wire.Code{wire.OK, wire.OK, wire.Throttled} {
		q := zkExistsReq("/a")
		q.Watch = true
		if i > 0 {
			q.Path = fmt.Sprint("/", i)
		}
		if code, _ := c.call(q); code != want && (i != 1 || code != wire.NoNode) {
			t.Errorf("watch %d: %s, want %s", i, code, want)
		}
	}
	if n := s.hub.watchCount(); n != 2 {
		t.Errorf("%d watches", n)
	}
}

// TestConnectionThatIsGoneLeavesNoWatches, however many it had, and whatever of its
// pipeline is still under way.
func TestConnectionThatIsGoneLeavesNoWatches(t *testing.T) {
	s, _ := fakeServer(t)
	near, far := net.Pipe()
	defer far.Close()
	c := newZKConn(s, near, newZKInput(near), guest{})
	s.hub.join(c)
	s.hub.mu.Lock()
	for i := range 3*leaveStep + 1 {
		s.hub.watches.Add(c.sub, 0, fmt.Sprint("/", i), watch.OneShotData)
	}
	s.hub.mu.Unlock()
	s.dropZK(c)
	late := zkExistsReq("/late")
	late.Watch = true
	c.pipe.mu.Lock()
	c.pipe.takeLocked(wire.Header{Xid: 1, Type: wire.Exists}, late.Append(nil), 0)
	c.pipe.mu.Unlock()
	if n := s.hub.watchCount(); n != 0 || len(s.hub.streams()) != 0 {
		t.Errorf("%d watches, %d streams are left", n, len(s.hub.streams()))
	}
}
