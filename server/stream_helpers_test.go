package server

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"

	"github.com/coordd/coord/api/coordpb"
)

// tester is a client of one session stream that checks the order rules in every
// message it gets.
type tester struct {
	t       testing.TB
	stream  coordpb.Coord_SessionClient
	cancel  context.CancelFunc
	welcome *coordpb.Welcome
	nonce   []byte

	seq, id uint64 // used last; of the sending goroutine

	mu      sync.Mutex
	cond    *sync.Cond
	replies map[uint64]*coordpb.Reply // by seq, or by id | plain
	events  []*coordpb.Event
	mark    uint64
	acked   uint64
	lastSeq uint64 // highest write answered
	goodbye *coordpb.Error
	ended   bool
	endErr  error

	// onMessage, if set, sees every message, under mu.
	onMessage func(m *coordpb.SessionReply)
}

// plain marks ids in tester.replies.
const plain = 1 << 63

func nonce() []byte {
	b := make([]byte, 16)
	rand.Read(b)
	return b
}

// open opens a session.
func (r *running) open(change ...func(h *coordpb.Hello)) *tester {
	r.t.Helper()
	h := &coordpb.Hello{Mode: coordpb.Hello_MODE_OPEN, Nonce: nonce(), Name: "test"}
	for _, f := range change {
		f(h)
	}
	c := r.hello(h)
	if e := c.welcome.GetError(); e != nil {
		r.t.Fatalf("welcome: %v", e)
	}
	return c
}

// hello starts a stream and returns after the welcome, whatever it says.
func (r *running) hello(h *coordpb.Hello) *tester {
	r.t.Helper()
	c, err := startTester(r.t, r.coord(), h)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func startTester(t testing.TB, client coordpb.CoordClient, h *coordpb.Hello) (*tester, error) {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := client.Session(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&coordpb.SessionRequest{Hello: h}); err != nil {
		return nil, err
	}
	m, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	if m.GetWelcome() == nil {
		return nil, fmt.Errorf("first message %v", m)
	}
	c := &tester{t: t, stream: stream, cancel: cancel, welcome: m.GetWelcome(), nonce: h.GetNonce(), mark: m.GetZxid(), replies: map[uint64]*coordpb.Reply{}}
	c.cond = sync.NewCond(&c.mu)
	if next := c.welcome.GetNextSeq(); next > 0 {
		c.seq = next - 1
	}
	if c.welcome.GetError() == nil {
		go c.receive()
	}
	return c, nil
}

// attach moves the session to a new stream.
func (r *running) attach(c *tester, connection uint64) *tester {
	r.t.Helper()
	return r.hello(&coordpb.Hello{
		Mode: coordpb.Hello_MODE_ATTACH, SessionId: c.welcome.GetSessionId(), Secret: c.welcome.GetSecret(), Connection: connection,
	})
}

func (c *tester) receive() {
	for {
		m, err := c.stream.Recv()
		c.mu.Lock()
		if err != nil {
			c.ended, c.endErr = true, err
			c.cond.Broadcast()
			c.mu.Unlock()
			return
		}
		c.takeLocked(m)
		c.cond.Broadcast()
		c.mu.Unlock()
	}
}

func (c *tester) takeLocked(m *coordpb.SessionReply) {
	if c.onMessage != nil {
		c.onMessage(m)
	}
	if m.GetZxid() < c.mark {
		c.t.Errorf("mark goes back from %x to %x", c.mark, m.GetZxid())
	}
	c.events = append(c.events, m.GetEvents()...)
	for _, r := range m.GetReplies() {
		key := r.GetSeq()
		if key == 0 {
			key = r.GetId() | plain
		}
		c.replies[key] = r
		c.lastSeq = max(c.lastSeq, r.GetSeq())
	}
	c.mark = max(c.mark, m.GetZxid())
	if g := m.GetGoodbye(); g != nil {
		c.goodbye = g.GetError()
	}
}

func (c *tester) send(rs ...*coordpb.Request) {
	c.t.Helper()
	if err := c.stream.Send(&coordpb.SessionRequest{Requests: rs, Ack: c.acked}); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// wait returns when ok is true of what was received.
func (c *tester) wait(what string, ok func() bool) {
	c.t.Helper()
	stop := context.AfterFunc(withPatience(c.t), func() { c.cond.Broadcast() })
	defer stop()
	ctx := withPatience(c.t)
	c.mu.Lock()
	defer c.mu.Unlock()
	for !ok() {
		if c.ended && !ok() {
			c.t.Fatalf("stream ended (%v, goodbye %v) before: %s", c.endErr, c.goodbye, what)
		}
		if ctx.Err() != nil {
			c.t.Fatalf("never: %s", what)
		}
		c.cond.Wait()
	}
}

func withPatience(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// offer sends a write and returns its number.
func (c *tester) offer(ops ...*coordpb.Op) uint64 {
	c.t.Helper()
	c.seq++
	c.send(&coordpb.Request{Seq: c.seq, Write: &coordpb.Write{Ops: ops, Multi: len(ops) != 1}})
	return c.seq
}

func (c *tester) answer(seq uint64) *coordpb.Reply {
	c.t.Helper()
	var r *coordpb.Reply
	c.wait(fmt.Sprintf("answer to %d", seq&^plain), func() bool { r = c.replies[seq]; return r != nil })
	return r
}

func (c *tester) write(ops ...*coordpb.Op) *coordpb.Reply {
	c.t.Helper()
	return c.answer(c.offer(ops...))
}

func (c *tester) must(ops ...*coordpb.Op) *coordpb.Reply {
	c.t.Helper()
	r := c.write(ops...)
	if r.GetError() != nil {
		c.t.Fatalf("write: %v", r.GetError())
	}
	return r
}

// ask sends a request that is not a write and returns its id.
func (c *tester) ask(r *coordpb.Request) uint64 {
	c.t.Helper()
	c.id++
	r.Id = c.id
	c.send(r)
	return c.id
}

func (c *tester) read(r *coordpb.Read) *coordpb.Reply {
	c.t.Helper()
	return c.answer(c.ask(&coordpb.Request{Read: r}) | plain)
}

func (c *tester) watch(w *coordpb.Watch) (id uint64, r *coordpb.Reply) {
	c.t.Helper()
	id = c.ask(&coordpb.Request{Watch: w})
	return id, c.answer(id | plain)
}

// seen returns the events so far.
func (c *tester) seen() []*coordpb.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*coordpb.Event(nil), c.events...)
}

// end waits for the end of the stream and returns the goodbye.
func (c *tester) end() *coordpb.Error {
	c.t.Helper()
	c.wait("the stream ends", func() bool { return c.ended })
	return c.goodbye
}

func create(path, data string) *coordpb.Op {
	return &coordpb.Op{Kind: coordpb.Op_KIND_CREATE, Path: path, Data: []byte(data)}
}

func set(path, data string) *coordpb.Op {
	return &coordpb.Op{Kind: coordpb.Op_KIND_SET, Path: path, Data: []byte(data), Version: -1}
}

func remove(path string) *coordpb.Op {
	return &coordpb.Op{Kind: coordpb.Op_KIND_DELETE, Path: path, Version: -1}
}

func ephemeral(path string) *coordpb.Op {
	op := create(path, "")
	op.Node = coordpb.NodeKind_NODE_KIND_EPHEMERAL
	return op
}

func get(path string) *coordpb.Read {
	return &coordpb.Read{Kind: coordpb.Read_KIND_GET, Path: path}
}

// wantCode fails unless the error has the code.
func wantCode(t testing.TB, e *coordpb.Error, code coordpb.Code) {
	t.Helper()
	if e.GetCode() != code {
		t.Fatalf("error %v, want %s", e, code)
	}
}
