package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/internal/seed"
)

// follower keeps a watch over many streams, as a client does: its position
// moves with the last event of a transaction and with marks, and what it has
// already it drops by (zxid, index).
type follower struct {
	pos, zxid uint64
	index     uint32
	changes   []string
	resyncs   int
}

func (f *follower) event(e *coordpb.Event) {
	if e.GetType() == coordpb.EventType_EVENT_RESYNC {
		f.resyncs++
		f.pos = max(f.pos, e.GetZxid())
		return
	}
	if z := e.GetZxid(); z > f.zxid || z == f.zxid && e.GetIndex() > f.index {
		f.zxid, f.index = z, e.GetIndex()
		f.changes = append(f.changes, fmt.Sprintf("%s %s", e.GetType(), e.GetPath()))
	}
	if e.GetLast() {
		f.pos = max(f.pos, e.GetZxid())
	}
}

// follow runs one stream from the present position until it is cut at random.
func (f *follower) follow(r *running, cutAfter time.Duration) {
	c := r.hello(&coordpb.Hello{Mode: coordpb.Hello_MODE_NONE})
	defer c.cancel()
	registered := uint64(0)
	c.mu.Lock()
	c.onMessage = func(m *coordpb.SessionReply) {
		for _, reply := range m.GetReplies() {
			if reply.GetId() == 1 {
				registered = m.GetZxid()
				if f.pos == 0 {
					f.pos = reply.GetZxid()
				}
			}
		}
		for _, e := range m.GetEvents() {
			f.event(e)
		}
		if registered != 0 && m.GetZxid() > registered {
			f.pos = max(f.pos, m.GetZxid())
		}
	}
	c.mu.Unlock()
	c.send(&coordpb.Request{Id: 1, Watch: &coordpb.Watch{Path: "/r", Kind: coordpb.Watch_KIND_RECURSIVE, Since: f.pos}})
	time.Sleep(cutAfter)
	c.cancel()
	c.wait("cut", func() bool { return c.ended })
}

// TestResumedWatchSeesEveryChangeOnce cuts the stream of a watch again and
// again, in the middle of large transactions too.
func TestResumedWatchSeesEveryChangeOnce(t *testing.T) {
	r := start(t, oneServer(t))
	w := r.open()
	w.must(create("/r", ""))
	f := &follower{}
	f.follow(r, 50*time.Millisecond) // registers
	if f.pos == 0 {
		t.Fatal("never registered")
	}
	const rounds = 300
	var want []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range rounds {
			var ops []*coordpb.Op
			for k := range 1 + n%40 {
				p := fmt.Sprintf("/r/%d-%d", n, k)
				ops = append(ops, create(p, ""))
				want = append(want, "EVENT_CREATED "+p)
			}
			if len(ops) == 1 {
				w.must(ops[0])
			} else {
				w.must(ops...)
			}
			w.acked = w.seq
		}
	}()
	rnd := seed.Rand(t)
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		f.follow(r, time.Duration(rnd.IntN(8_000))*time.Microsecond)
	}
	for deadline := time.Now().Add(patience); len(f.changes) < len(want) && time.Now().Before(deadline); {
		f.follow(r, 50*time.Millisecond)
	}
	if f.resyncs != 0 {
		t.Errorf("%d resyncs although the history has everything", f.resyncs)
	}
	for i := range want {
		if i >= len(f.changes) || f.changes[i] != want[i] {
			t.Fatalf("change %d of %d is %q, want %q (have %d)", i, len(want), append(f.changes, "")[min(i, len(f.changes))], want[i], len(f.changes))
		}
	}
	if len(f.changes) != len(want) {
		t.Errorf("%d changes, want %d: some came twice", len(f.changes), len(want))
	}
}

func TestWatchFromBeforeTheHistoryIsToldToResync(t *testing.T) {
	r := start(t, oneServer(t))
	c := r.open()
	first := c.must(create("/a", "")).GetZxid()
	c.must(set("/a", "2"))
	last := c.must(set("/a", "3")).GetZxid()
	r.hub.mu.Lock()
	r.hub.history.Reset(r.hub.firedZxid() - 1) // as if the first changes had been dropped
	r.hub.mu.Unlock()
	id, reply := c.watch(&coordpb.Watch{Path: "/a", Kind: coordpb.Watch_KIND_NODE, Since: first, Initial: true, WithData: true})
	if reply.GetError() != nil {
		t.Fatal(reply)
	}
	c.wait("resync and present state", func() bool { return len(c.events) == 2 })
	got := c.seen()
	if got[0].GetType() != coordpb.EventType_EVENT_RESYNC || got[0].GetWatchId() != id || got[0].GetZxid() != last {
		t.Errorf("want resync at %x, got %v", last, got[0])
	}
	if got[1].GetType() != coordpb.EventType_EVENT_PRESENT || string(got[1].GetData()) != "3" {
		t.Errorf("want the present state, got %v", got[1])
	}
}

func TestInitialStateThenEveryChange(t *testing.T) {
	r := start(t, oneServer(t))
	c := r.open()
	c.watch(&coordpb.Watch{Path: "/a", Kind: coordpb.Watch_KIND_NODE, Initial: true, WithData: true})
	c.must(create("/a", "1"))
	c.must(set("/a", "2"))
	c.watch(&coordpb.Watch{Path: "/a", Kind: coordpb.Watch_KIND_NODE, Initial: true})
	c.must(remove("/a"))
	c.wait("all events", func() bool { return len(c.events) == 6 })
	var got []string
	for _, e := range c.seen() {
		got = append(got, fmt.Sprintf("%d %s %q", e.GetWatchId(), e.GetType(), e.GetData()))
	}
	want := []string{
		`1 EVENT_ABSENT ""`, `1 EVENT_CREATED "1"`, `1 EVENT_CHANGED "2"`, `2 EVENT_PRESENT ""`,
	}
	for i, w := range want {
		if got[i] != w {
			t.Errorf("event %d is %s, want %s", i, got[i], w)
		}
	}
}

func TestOneShotWatchFiresOnceAndIsGone(t *testing.T) {
	r := start(t, oneServer(t))
	c := r.open()
	c.must(create("/a", "1"))
	read := get("/a")
	read.WatchId = 100
	c.read(read)
	exists := &coordpb.Read{Kind: coordpb.Read_KIND_EXISTS, Path: "/b", WatchId: 101}
	wantCode(t, c.read(exists).GetError(), coordpb.Code_CODE_NO_NODE)
	missing := get("/none")
	missing.WatchId = 102
	wantCode(t, c.read(missing).GetError(), coordpb.Code_CODE_NO_NODE)
	c.must(set("/a", "2"))
	c.must(set("/a", "3"))
	c.must(create("/b", ""))
	c.must(create("/none", ""))
	got := c.seen()
	if len(got) != 2 || got[0].GetWatchId() != 100 || got[1].GetWatchId() != 101 || !got[0].GetOneShot() {
		t.Fatalf("events %v", got)
	}
	if n := r.hub.watchCount(); n != 0 {
		t.Errorf("%d watches left", n)
	}
}

func TestWatchesGoWithTheirStream(t *testing.T) {
	r := start(t, oneServer(t))
	for range 50 {
		c := r.open()
		c.watch(&coordpb.Watch{Path: "/x", Kind: coordpb.Watch_KIND_RECURSIVE})
		c.cancel()
	}
	c := r.open()
	id, _ := c.watch(&coordpb.Watch{Path: "/x", Kind: coordpb.Watch_KIND_NODE})
	c.send(&coordpb.Request{Id: id, Unwatch: true})
	eventually(t, "no watch is left", func() bool { return r.hub.watchCount() == 0 })
	eventually(t, "one stream is left", func() bool { return len(r.hub.streams()) == 1 })
	c.must(create("/x", ""))
	if got := c.seen(); len(got) != 0 {
		t.Errorf("events after unwatch: %v", got)
	}
}
