package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/wire"
)

// TestReleaseIsNotHeldBackByAnOverload: who gives a lock back, or leaves, makes room.
func TestReleaseIsNotHeldBackByAnOverload(t *testing.T) {
	s, n := fakeServer(t)
	c, _ := connect(t, s)
	c.send(put(1, create("/lock", "")))
	c.reply(1)
	n.load(&cluster.OverloadedError{RetryAfter: time.Second})
	c.send(put(2, remove("/lock")))
	if r := c.reply(2); r.GetError() != nil {
		t.Error(r)
	}
	work := make([]*coordpb.Op, maxGivenBack+1)
	for i := range work {
		work[i] = remove(fmt.Sprintf("/n%d", i))
	}
	c.send(&coordpb.Request{Seq: 3, Write: &coordpb.Write{Ops: work, Multi: true}})
	if err := c.next(50 * time.Millisecond); err == nil {
		t.Errorf("%d operations are taken as a release: %v", len(work), c.got)
	}
	n.load(nil)
	c.reply(3)
}

// TestReleaseOfAZooKeeperClientIsNotHeldBackByAnOverload: as on gRPC.
func TestReleaseOfAZooKeeperClientIsNotHeldBackByAnOverload(t *testing.T) {
	for name, goes := range map[string]wire.Request{
		"delete":       zkDeleteReq("/a"),
		"closeSession": {Op: wire.Op{Type: wire.CloseSession}},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, n := zkPipe(t)
			n.load(cluster.ErrOverloaded)
			if code, _ := c.call(goes); code != wire.OK {
				t.Errorf("%s", code)
			}
		})
	}
}

// TestRefusalSaysWhenToComeAgain: as the node that refuses has said.
func TestRefusalSaysWhenToComeAgain(t *testing.T) {
	s, n := fakeServer(t)
	n.load(&cluster.OverloadedError{RetryAfter: 1234 * time.Millisecond})
	_, w := connectRefused(t, s)
	wantCode(t, w.GetError(), coordpb.Code_CODE_OVERLOADED)
	if got := w.GetError().GetRetryAfterMs(); got != 1234 {
		t.Errorf("come again in %d ms", got)
	}
}

// TestLongReadsTakeTurnsAndHoldUpNobody: one connection that asks for many huge
// listings gets them one by one, another one its own between two of them.
func TestLongReadsTakeTurnsAndHoldUpNobody(t *testing.T) {
	b := bulk{wake: make(chan struct{}, 1)}
	one, other := &conn{}, &conn{}
	for id := range uint64(100) {
		b.add(&reading{c: one, id: id})
	}
	b.add(&reading{c: other, id: 1000})
	b.add(&reading{id: 2000}) // without a session
	var got []uint64
	for q := b.next(); q != nil; q = b.next() {
		got = append(got, q.id)
	}
	if len(got) != 102 || fmt.Sprint(got[:5]) != "[0 1000 2000 1 2]" {
		t.Errorf("%d reads in the order %v", len(got), got[:min(len(got), 5)])
	}
	if len(b.lines) != 0 {
		t.Errorf("%d connections are remembered", len(b.lines))
	}
}

// TestLongReadIsOneOfManyEntries: a page of a listing, or a node with few children,
// is answered with all others.
func TestLongReadIsOneOfManyEntries(t *testing.T) {
	s, n := fakeServer(t)
	ops := []*coordpb.Op{create("/huge", ""), create("/small", "")}
	for i := range bulkChildren + 1 {
		ops = append(ops, create(fmt.Sprintf("/huge/n%d", i), ""))
	}
	c, _ := connect(t, s)
	c.send(&coordpb.Request{Seq: 1, Write: &coordpb.Write{Ops: ops, Multi: true}})
	if r := c.reply(1); r.GetError() != nil {
		t.Fatal(r)
	}
	for _, q := range []struct {
		read *coordpb.Read
		long bool
	}{
		{&coordpb.Read{Kind: coordpb.Read_KIND_CHILDREN, Path: "/huge"}, true},
		{&coordpb.Read{Kind: coordpb.Read_KIND_CHILDREN, Path: "/huge", Limit: bulkChildren}, false},
		{&coordpb.Read{Kind: coordpb.Read_KIND_CHILDREN, Path: "/small"}, false},
		{&coordpb.Read{Kind: coordpb.Read_KIND_WALK, Path: "/"}, true},
		{&coordpb.Read{Kind: coordpb.Read_KIND_COUNT, Path: "/"}, true},
		{&coordpb.Read{Kind: coordpb.Read_KIND_GET, Path: "/huge"}, false},
	} {
		n.m.View(func(v *fsm.View) {
			if got := s.reader.isBulk(&reading{read: q.read}, v); got != q.long {
				t.Errorf("%v: long %v", q.read, got)
			}
		})
	}
}

// TestLongReadThatWaitedForTooLongIsRefused: nobody works for those who have left.
func TestLongReadThatWaitedForTooLongIsRefused(t *testing.T) {
	s, _ := fakeServer(t)
	answered := make(chan item, 1)
	s.reader.long.add(&reading{
		op: opWalk, start: s.clock.now() - int64(readPatience) - int64(time.Second),
		read:   &coordpb.Read{Kind: coordpb.Read_KIND_WALK, Path: "/"},
		answer: func(it item, _ int) { answered <- it },
		gone:   func() bool { return false },
	})
	select {
	case it := <-answered:
		wantCode(t, it.err, coordpb.Code_CODE_OVERLOADED)
		if it.err.GetRetryAfterMs() == 0 {
			t.Error("it does not say when to come again")
		}
	case <-time.After(patience):
		t.Fatal("no answer")
	}
}
