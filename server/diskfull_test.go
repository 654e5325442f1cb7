package server

import (
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/wire"
)

// fullDisks is what a node says that has known it for long.
func fullDisks() *cluster.DiskFullError {
	return &cluster.DiskFullError{Why: "n2: 3.0 MiB free", For: time.Minute}
}

func TestWriteOnFullDisksIsRefusedWithTheReasonAndLocksAreReleased(t *testing.T) {
	s, n := fakeServer(t)
	c, _ := connect(t, s)
	c.send(put(1, create("/lock", "")))
	c.reply(1)
	n.load(fullDisks())
	c.send(put(2, create("/more", "")), put(3, remove("/lock")))
	r := c.reply(2)
	wantCode(t, r.GetError(), coordpb.Code_CODE_DISK_FULL)
	if e := r.GetError(); !strings.Contains(e.GetMessage(), "n2: 3.0 MiB free") || e.GetRetryAfterMs() == 0 || e.GetMaybeDone() {
		t.Errorf("%v", e)
	}
	if r := c.reply(3); r.GetError() != nil {
		t.Errorf("the release behind it: %v", r)
	}
	_, w := connectRefused(t, s)
	wantCode(t, w.GetError(), coordpb.Code_CODE_DISK_FULL)
	write := func(op *coordpb.Op) *coordpb.Error {
		reply, err := coordService{s: s}.Write(t.Context(), &coordpb.WriteRequest{Write: &coordpb.Write{Ops: []*coordpb.Op{op}}})
		if err != nil {
			t.Fatal(err)
		}
		return reply.GetError()
	}
	wantCode(t, write(create("/a", "")), coordpb.Code_CODE_DISK_FULL)
	wantCode(t, write(remove("/lock")), coordpb.Code_CODE_NO_NODE)
	n.load(nil)
	c.send(put(4, create("/more", "")))
	if r := c.reply(4); r.GetError() != nil {
		t.Error(r)
	}
}

func TestDisksThatAreFullForAMomentAreADelay(t *testing.T) {
	s, n := fakeServer(t)
	c, _ := connect(t, s)
	moment := &cluster.DiskFullError{For: diskPatience / 2}
	n.load(moment)
	c.send(put(1, create("/a", "")))
	if err := c.next(50 * time.Millisecond); err == nil {
		t.Fatalf("answered: %v", c.got)
	}
	n.load(nil)
	if r := c.reply(1); r.GetError() != nil {
		t.Error(r)
	}
}

// A refused write costs a few bytes of the reserve, so those of clients that know
// no pause are held back in the end.
func TestRefusalsOnFullDisksAreBounded(t *testing.T) {
	s, n := fakeServer(t)
	s.room.declined.SetLimit(0)
	s.room.declined.SetBurst(2)
	c, _ := connect(t, s)
	n.load(fullDisks())
	c.send(put(1, create("/a", "")), put(2, create("/b", "")), put(3, create("/c", "")))
	c.reply(1)
	c.reply(2)
	if err := c.next(50 * time.Millisecond); err == nil {
		t.Fatalf("answered: %v", c.got)
	}
	n.load(nil)
	if r := c.reply(3); r.GetError() != nil {
		t.Error(r)
	}
}

// Deletes of what is not there take from the reserve as well: one client must not
// use up what the others need to release their locks.
func TestDeletesOnFullDisksAreBoundedForEachClient(t *testing.T) {
	s, n := fakeServer(t)
	c, _ := connect(t, s)
	other, _ := connect(t, s)
	c.send(put(1, create("/lock", "")))
	c.reply(1)
	n.load(fullDisks())
	work := make([]*coordpb.Op, givenAtOnce/2)
	for i := range work {
		work[i] = remove("/not/there")
	}
	for seq := uint64(2); seq < 4; seq++ {
		c.send(&coordpb.Request{Seq: seq, Write: &coordpb.Write{Ops: work, Multi: true}})
		wantCode(t, c.reply(seq).GetError(), coordpb.Code_CODE_NO_NODE)
	}
	c.send(&coordpb.Request{Seq: 4, Write: &coordpb.Write{Ops: work, Multi: true}})
	if err := c.next(50 * time.Millisecond); err == nil {
		t.Fatalf("answered: %v", c.got)
	}
	other.send(put(1, remove("/lock")))
	if r := other.reply(1); r.GetError() != nil {
		t.Errorf("the release of another: %v", r)
	}
	n.load(nil)
	wantCode(t, c.reply(4).GetError(), coordpb.Code_CODE_NO_NODE)
}

// With no room at all a number cannot be used up, so the write waits. Without a
// number it is refused.
func TestWithoutAnyRoomNumberedWritesWait(t *testing.T) {
	s, n := fakeServer(t)
	c, _ := connect(t, s)
	none := fullDisks()
	none.Spent = true
	n.load(none)
	c.send(put(1, create("/a", "")))
	if err := c.next(50 * time.Millisecond); err == nil {
		t.Fatalf("answered: %v", c.got)
	}
	reply, err := coordService{s: s}.Write(t.Context(), &coordpb.WriteRequest{Write: &coordpb.Write{Ops: []*coordpb.Op{remove("/a")}}})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, reply.GetError(), coordpb.Code_CODE_DISK_FULL)
	n.load(fullDisks())
	wantCode(t, c.reply(1).GetError(), coordpb.Code_CODE_DISK_FULL)
}

// A refusal comes in its turn, and what is behind it goes on.
func TestZooKeepersWritesOnFullDisksAreRefusedInTheirTurn(t *testing.T) {
	c, _, n := zkPipe(t)
	if code, _ := c.call(zkSetReq("/a", "before")); code != wire.OK {
		t.Fatal(code)
	}
	n.load(fullDisks())
	c.send(zkSetReq("/a", "refused"))
	c.send(zkGetReq("/a"))
	c.send(zkDeleteReq("/a"))
	if code, _ := c.reply(c.xid-2, wire.SetData); code != wire.Throttled {
		t.Errorf("the write: %s", code)
	}
	if code, p := c.reply(c.xid-1, wire.GetData); code != wire.OK || string(p.Data) != "before" {
		t.Errorf("the read behind it: %s, %q", code, p.Data)
	}
	if code, _ := c.reply(c.xid, wire.Delete); code != wire.OK {
		t.Errorf("the delete: %s", code)
	}
	none := fullDisks()
	none.Spent = true
	n.load(none)
	if code, _ := c.call(zkDeleteReq("/a")); code != wire.Throttled {
		t.Errorf("a delete without any room: %s", code)
	}
	n.load(nil)
	if code, _ := c.call(zkDeleteReq("/a")); code != wire.NoNode {
		t.Errorf("with room again: %s", code)
	}
}
