package server

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

func cloneReply(m *coordpb.SessionReply) *coordpb.SessionReply { return proto.CloneOf(m) }

func put(seq uint64, op *coordpb.Op) *coordpb.Request {
	return &coordpb.Request{Seq: seq, Write: &coordpb.Write{Ops: []*coordpb.Op{op}}}
}

func ask(id uint64, r *coordpb.Read) *coordpb.Request { return &coordpb.Request{Id: id, Read: r} }

func local(path string) *coordpb.Read {
	return &coordpb.Read{Kind: coordpb.Read_KIND_GET, Path: path, Mode: coordpb.ReadMode_READ_MODE_SESSION}
}

// TestSlowLinearizableReadHoldsUpNothing: a lock must be releasable although
// some read waits for a leader.
func TestSlowLinearizableReadHoldsUpNothing(t *testing.T) {
	s, n := fakeServer(t)
	n.round = make(chan struct{})
	c, _ := connect(t, s)
	c.send(ask(1001, get("/")), put(1, create("/a", "x")), ask(1002, local("/a")))
	if r := c.reply(1); r.GetError() != nil {
		t.Fatal(r)
	}
	after := local("/a")
	after.AfterSeq = 1
	c.send(ask(1003, after))
	if r := c.reply(1003); string(r.GetRead().GetData()) != "x" {
		t.Fatal(r)
	}
	for _, r := range c.got {
		if r.GetId() == 1001 {
			t.Fatal("the linearizable read was answered without a round")
		}
	}
	close(n.round)
	c.reply(1001)
}

// TestManyReadsShareARound: what arrives while a round is under way is served by
// the next, together.
func TestManyReadsShareARound(t *testing.T) {
	s, n := fakeServer(t)
	n.round = make(chan struct{})
	c, _ := connect(t, s)
	for id := range uint64(500) {
		c.send(ask(id+1, get("/")))
	}
	eventually(t, "all of them wait", func() bool { return s.hub.streams()[0].(*conn).unsent.Load() == 500 })
	close(n.round)
	for id := range uint64(500) {
		c.reply(id + 1)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rounds > 50 {
		t.Errorf("500 reads took %d rounds", n.rounds)
	}
}

func TestReadWithoutLeaderIsADelayThenAnError(t *testing.T) {
	s, n := fakeServer(t)
	n.roundOK = cluster.ErrNotLeader
	c, _ := connect(t, s)
	c.send(ask(1001, get("/")))
	if err := c.next(50 * time.Millisecond); err == nil {
		t.Fatalf("answered without a leader: %v", c.got)
	}
	n.mu.Lock()
	n.roundOK = nil
	n.mu.Unlock()
	if r := c.reply(1001); r.GetError() != nil {
		t.Fatal(r)
	}
	refused := make(chan item, 1)
	q := &reading{
		op: opGet, start: s.clock.now() - int64(2*readPatience), read: get("/"),
		answer: func(it item, _ int) { refused <- it }, gone: func() bool { return false },
	}
	s.reader.retry(t.Context(), []*reading{q}, errors.New("something deep"))
	wantCode(t, (<-refused).err, coordpb.Code_CODE_UNAVAILABLE)
}

func TestReadBehindAWriteWaitsForIt(t *testing.T) {
	s, n := fakeServer(t)
	c, _ := connect(t, s)
	n.hold()
	behind := local("/a")
	behind.AfterSeq = 1
	c.send(put(1, create("/a", "x")), ask(1001, behind), ask(1002, local("/a")))
	wantCode(t, c.reply(1002).GetError(), coordpb.Code_CODE_NO_NODE) // it asked for no write
	if err := c.next(30 * time.Millisecond); err == nil {
		t.Fatalf("answered before the write: %v", c.got)
	}
	n.release()
	if r := c.reply(1001); string(r.GetRead().GetData()) != "x" || r.GetZxid() != c.reply(1).GetZxid() {
		t.Fatal(r)
	}
}

func TestReadWaitsForTheZxidItNames(t *testing.T) {
	s, n := fakeServer(t)
	c, _ := connect(t, s)
	ahead := local("/a")
	ahead.MinZxid = uint64(s.machine.Zxid()) + 3
	c.send(ask(1001, ahead))
	for i := range 3 {
		if err := c.next(10 * time.Millisecond); err == nil {
			t.Fatalf("answered at transaction %d: %v", i, c.got)
		}
		n.Propose(&fsm.Command{Kind: fsm.CmdWrite, Write: mustWrite(t, s, create(fmt.Sprint("/", i), ""))}, nopWaiter{})
	}
	if r := c.reply(1001); r.GetZxid() < ahead.GetMinZxid() {
		t.Errorf("answered at %x", r.GetZxid())
	}
	// One that is too far ahead is told so in the end, and none is kept for a
	// client that has left.
	far := local("/a")
	far.MinZxid = 1 << 62
	conn := s.hub.streams()[0].(*conn)
	conn.unsent.Add(1)
	s.reader.submit([]*reading{newReading(conn, ask(1002, far), s.clock.now()-int64(2*readPatience))})
	s.reader.sweep()
	wantCode(t, c.reply(1002).GetError(), coordpb.Code_CODE_UNAVAILABLE)
	c.send(ask(1003, far))
	eventually(t, "it is parked", func() bool { return parkedReads(s) == 1 })
	close(c.p.in)
	eventually(t, "it is forgotten", func() bool { s.reader.sweep(); return parkedReads(s) == 0 })
}

type nopWaiter struct{}

func (nopWaiter) Applied(*fsm.Result) {}

func mustWrite(t testing.TB, s *Server, ops ...*coordpb.Op) *fsm.Write {
	t.Helper()
	w, err := decodeWrite(&coordpb.Write{Ops: ops, Multi: len(ops) > 1}, &s.limits)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func parkedReads(s *Server) int {
	s.reader.mu.Lock()
	defer s.reader.mu.Unlock()
	return len(s.reader.byZxid.heap)
}

func TestNothingOlderThanTheClientHasSeenIsShown(t *testing.T) {
	s, n := fakeServer(t)
	c := newConn(s, guest{})
	c.floor = s.machine.Zxid() + 1 // of its Hello
	for _, mode := range []coordpb.ReadMode{coordpb.ReadMode_READ_MODE_STALE, coordpb.ReadMode_READ_MODE_SESSION, coordpb.ReadMode_READ_MODE_LINEARIZABLE} {
		read := local("/")
		read.Mode = mode
		q := newReading(c, ask(1, read), s.clock.now())
		answered := make(chan item, 1)
		q.answer = func(it item, _ int) { answered <- it }
		s.reader.submit([]*reading{q})
		eventually(t, "it is parked", func() bool { return parkedReads(s) == 1 })
		select {
		case it := <-answered:
			t.Fatalf("%s: shown at %s, the client has seen %s", mode, it.zxid, c.floor)
		default:
		}
		n.Propose(&fsm.Command{Kind: fsm.CmdWrite, Write: mustWrite(t, s, set("/", ""))}, nopWaiter{})
		if it := <-answered; it.zxid < c.floor {
			t.Errorf("%s: shown at %s, the client has seen %s", mode, it.zxid, c.floor)
		}
		c.floor = s.machine.Zxid() + 1
	}
}

func TestStaleReadSaysItsAge(t *testing.T) {
	s, n := fakeServer(t)
	n.age = 1500 * time.Millisecond
	n.round = make(chan struct{}) // there is no leader
	c, _ := connect(t, s)
	read := local("/")
	read.Mode = coordpb.ReadMode_READ_MODE_STALE
	c.send(ask(1001, read))
	if r := c.reply(1001).GetRead(); !r.GetStale() || r.GetAgeMs() != 1500 {
		t.Error(r)
	}
}

// TestRestoredStateResyncsEveryWatch: what a snapshot jumped over can be told by
// nobody, so every watch is told to read again, and nothing before is resumed.
func TestRestoredStateResyncsEveryWatch(t *testing.T) {
	s, n := fakeServer(t)
	c, w := connect(t, s)
	c.send(put(1, create("/a", "")), &coordpb.Request{Id: 1001, Watch: &coordpb.Watch{Path: "/a", Kind: coordpb.Watch_KIND_NODE}})
	before := c.reply(1).GetZxid()
	one := local("/a")
	one.WatchId = 1003
	c.send(ask(1002, one))
	c.reply(1002)
	var image bytes.Buffer
	donor := fsm.New(fsm.Options{})
	batch := fsm.NewBatch(nil, 2_000_000)
	for _, cmd := range []*fsm.Command{
		{Kind: fsm.CmdNewEpoch, Epoch: &fsm.NewEpoch{Term: fakeTerm, Clock: 2_000_000, MinEpoch: 9, ClusterID: "c"}},
	} {
		batch = fsm.AppendToBatch(batch, fsm.AppendCommand(nil, cmd))
	}
	if err := donor.ApplyEntry(1000, fakeTerm, batch); err != nil {
		t.Fatal(err)
	}
	if err := donor.Snapshot().Encode(&image); err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	err := n.m.Restore(&image)
	n.index = 1000
	n.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	c.until("both watches are told", func() bool { return len(c.evs) == 2 })
	for _, e := range c.evs {
		if e.GetType() != coordpb.EventType_EVENT_RESYNC || e.GetPath() != "/a" || e.GetZxid() <= before {
			t.Errorf("event %v", e)
		}
		if e.GetOneShot() != (e.GetWatchId() == 1003) {
			t.Errorf("event %v", e)
		}
	}
	// The session is not in the new state: its stream is told so.
	c.until("goodbye", func() bool { return c.bye != nil })
	wantCode(t, c.bye, coordpb.Code_CODE_UNKNOWN_SESSION)
	s.hub.mu.Lock()
	floor := s.hub.history.Floor()
	s.hub.mu.Unlock()
	if uint64(floor) <= before {
		t.Errorf("the history begins at %s, before the restored state", floor)
	}
	if err := s.hub.beat(session.ID(w.GetSessionId()), w.GetSecret(), 1, 1, &s.metrics.silence); err == nil {
		t.Error("a heartbeat of a session that is gone is taken")
	}
}

func TestEndedSessionIsToldWhy(t *testing.T) {
	const code = coordpb.Code_CODE_SESSION_EXPIRED
	for reason, want := range map[session.EndReason]coordpb.SessionEnd{
		session.Killed: coordpb.SessionEnd_SESSION_END_KILLED, session.Expired: coordpb.SessionEnd_SESSION_END_EXPIRED,
		session.TakenOver: coordpb.SessionEnd_SESSION_END_TAKEN_OVER, session.Restored: coordpb.SessionEnd_SESSION_END_RESTORED,
	} {
		s, n := fakeServer(t)
		c, w := connect(t, s)
		n.Propose(&fsm.Command{Kind: fsm.CmdKill, Kill: &fsm.Kill{Session: session.ID(w.GetSessionId()), Reason: reason}}, nopWaiter{})
		c.until("goodbye", func() bool { return c.bye != nil })
		wantCode(t, c.bye, code)
		if got := c.bye.GetMessage(); got != "session "+reason.String() || c.bye.GetSessionEnd() != want {
			t.Errorf("%s: message %q, reason %s", reason, got, c.bye.GetSessionEnd())
		}
		id := session.ID(w.GetSessionId())
		// Who comes back later, and an answer that was on its way, are told the same.
		for name, err := range map[string]error{
			"attach": s.mayAttach(id, session.Secret(w.GetSecret())), "heartbeat": s.hub.withReason(id, session.ErrExpired),
		} {
			if e := wireError(err); e.GetCode() != code || e.GetSessionEnd() != want {
				t.Errorf("%s, %s: %v", reason, name, e)
			}
		}
	}
}

// TestWatchTakenBackBeforeItIsRegistered: the unwatch overtakes a registration
// that waits, and still wins.
func TestWatchTakenBackBeforeItIsRegistered(t *testing.T) {
	s, n := fakeServer(t)
	c, _ := connect(t, s)
	n.hold()
	c.send(put(1, create("/a", "")), &coordpb.Request{Id: 1001, Watch: &coordpb.Watch{Path: "/a", Kind: coordpb.Watch_KIND_NODE, AfterSeq: 1}},
		&coordpb.Request{Id: 1001, Unwatch: true})
	if r := c.reply(1001); r.GetError() != nil {
		t.Fatalf("unwatch: %v", r)
	}
	c.got = nil
	n.release()
	wantCode(t, c.reply(1001).GetError(), coordpb.Code_CODE_CANCELLED)
	if s.hub.watchCount() != 0 {
		t.Error("the watch was set")
	}
}

// TestOpenRepeatedAtAnotherServerMovesTheSession: the answer to the first Hello
// was lost, and the client says it again elsewhere.
func TestOpenRepeatedAtAnotherServerMovesTheSession(t *testing.T) {
	s, n := fakeServer(t)
	o := &fsm.Open{Nonce: session.Nonce(nonce()), Secret: session.Secret{7}, Timeout: time.Minute, Server: "n2~9", Boot: 4}
	n.Propose(&fsm.Command{Kind: fsm.CmdOpen, Open: o}, nopWaiter{})
	p := &pipe{t.Context(), make(chan *coordpb.SessionRequest, 1), make(chan *coordpb.SessionReply, 1)}
	p.in <- &coordpb.SessionRequest{Hello: &coordpb.Hello{Mode: coordpb.Hello_MODE_OPEN, Nonce: o.Nonce[:]}}
	opened := s.open(t.Context(), p)
	if opened.err != nil {
		t.Fatal(opened.err)
	}
	defer s.drop(opened.conn)
	if w := (<-p.out).GetWelcome(); w.GetConnection() != 2 || string(w.GetSecret()) != string(o.Secret[:]) || w.GetTimeoutMs() != 60_000 {
		t.Errorf("welcome %v", w)
	}
	if s.hub.attached.Load() != 1 {
		t.Errorf("%d sessions attached", s.hub.attached.Load())
	}
}

func TestNobodyIsLetInBeforeTheClusterIsFormed(t *testing.T) {
	s, n := fakeServer(t)
	n.formErr = &cluster.NotFormedError{Waiting: "waiting for n3"}
	_, w := connectRefused(t, s)
	wantCode(t, w.GetError(), coordpb.Code_CODE_NOT_FORMED)
	if m := w.GetError().GetMessage(); m != "cluster not formed, waiting for n3" {
		t.Errorf("message %q", m)
	}
	reply, err := coordService{s: s}.Read(t.Context(), &coordpb.ReadRequest{Read: get("/")})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, reply.GetError(), coordpb.Code_CODE_NOT_FORMED)
}

func TestOverloadRefusesWhatCannotWait(t *testing.T) {
	s, n := fakeServer(t)
	c, _ := connect(t, s)
	n.load(cluster.ErrOverloaded)
	_, w := connectRefused(t, s)
	wantCode(t, w.GetError(), coordpb.Code_CODE_OVERLOADED)
	reply, err := coordService{s: s}.Write(t.Context(), &coordpb.WriteRequest{Write: &coordpb.Write{Ops: []*coordpb.Op{create("/a", "")}}})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, reply.GetError(), coordpb.Code_CODE_OVERLOADED)
	if reply.GetError().GetRetryAfterMs() == 0 || reply.GetError().GetMaybeDone() {
		t.Errorf("%v", reply.GetError())
	}
	// A numbered write is never refused for that: it waits.
	c.send(put(1, create("/numbered", "")))
	if err := c.next(50 * time.Millisecond); err == nil {
		t.Fatalf("taken although the cluster is overloaded: %v", c.got)
	}
	n.load(nil)
	if r := c.reply(1); r.GetError() != nil {
		t.Error(r)
	}
}

// connectRefused says hello to a server that does not let the client in.
func connectRefused(t testing.TB, s *Server) (*pipe, *coordpb.Welcome) {
	t.Helper()
	p := &pipe{t.Context(), make(chan *coordpb.SessionRequest, 1), make(chan *coordpb.SessionReply, 1)}
	p.in <- &coordpb.SessionRequest{Hello: &coordpb.Hello{Mode: coordpb.Hello_MODE_OPEN, Nonce: nonce()}}
	o := s.open(t.Context(), p)
	if o.err == nil {
		t.Fatal("let in")
	}
	if err := o.end("n1", p); err != nil {
		t.Fatal(err)
	}
	return p, (<-p.out).GetWelcome()
}

func TestIdleClientsAcknowledgementsReachTheCluster(t *testing.T) {
	s, n := fakeServer(t)
	c, _ := connect(t, s)
	c.send(put(1, create("/a", "")), put(2, create("/b", "")))
	c.reply(2)
	c.p.in <- &coordpb.SessionRequest{Ack: 99} // more than there is
	eventually(t, "the acknowledgement is passed on", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.acks) == 1 && n.acks[0] == 2 && n.heard >= 2
	})
}

// broken is a stream whose messages make the server panic.
type broken struct{ *pipe }

func (b broken) Recv() (*coordpb.SessionRequest, error) {
	m, err := b.pipe.Recv()
	if err == nil && m.GetHello() == nil {
		panic("boom")
	}
	return m, err
}

func TestPanicInARequestEndsItsStreamOnly(t *testing.T) {
	s, _ := fakeServer(t)
	bystander, _ := connect(t, s)
	p := &pipe{t.Context(), make(chan *coordpb.SessionRequest, 2), make(chan *coordpb.SessionReply, 10)}
	p.in <- &coordpb.SessionRequest{Hello: &coordpb.Hello{Mode: coordpb.Hello_MODE_NONE}}
	p.in <- &coordpb.SessionRequest{}
	o := s.open(t.Context(), broken{p})
	if o.err != nil {
		t.Fatal(o.err)
	}
	if err := s.serve(t.Context(), o, broken{p}); err != nil {
		t.Fatal(err)
	}
	<-p.out // welcome
	wantCode(t, (<-p.out).GetGoodbye().GetError(), coordpb.Code_CODE_INTERNAL)
	if s.metrics.panics.Load() != 1 {
		t.Errorf("%d panics counted", s.metrics.panics.Load())
	}
	bystander.send(put(1, create("/unharmed", "")))
	if r := bystander.reply(1); r.GetError() != nil {
		t.Error(r)
	}
}
