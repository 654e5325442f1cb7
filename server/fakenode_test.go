package server

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// fakeNode is a node without a cluster: it applies what is proposed to a real
// state machine, at once or when the test lets it.
type fakeNode struct {
	t testing.TB
	s *Server
	m *fsm.Machine

	mu      sync.Mutex
	index   uint64
	seq     uint64 // of the own line
	held    bool   // nothing is applied
	queue   []fakeCommand
	waiters map[fakeKey]cluster.Waiter
	heard   int
	acks    []uint64
	dropped int

	round   chan struct{} // a linearizable round ends with each value; nil: at once
	rounds  int
	roundOK error
	age     time.Duration
	formErr error
	loadErr error
	loads   int   // times it was asked for
	beatErr error // the answer to each heartbeat

	beforeDone func() // is called before the end of each entry
}

type fakeKey struct {
	line fsm.LineRef
	seq  uint64
}

type fakeCommand struct {
	cmd []byte
	key fakeKey
}

const fakeTerm = 1

// fakeServer is a Server around a fakeNode, without ports.
func fakeServer(t testing.TB, change ...func(*Config)) (*Server, *fakeNode) {
	t.Helper()
	cfg := Config{Logger: discard(), Cluster: cluster.Config{Name: "n1"}, Version: "test"}
	for _, f := range change {
		f(&cfg)
	}
	s := newParts(cfg.withDefaults())
	n := &fakeNode{t: t, s: s, waiters: map[fakeKey]cluster.Waiter{}, age: time.Second}
	n.m = fsm.New(fsm.Options{Hook: n})
	s.node, s.machine, s.serverID, s.boot = n, n.m, "n1~1", 1
	n.apply(&fsm.Command{Kind: fsm.CmdNewEpoch, Epoch: &fsm.NewEpoch{Term: fakeTerm, Clock: 1_000_000, MinEpoch: 5, ClusterID: "c"}})
	n.apply(&fsm.Command{Kind: fsm.CmdBoot, Boot: &fsm.Boot{Server: "n1~1", Nonce: 1}})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.reader.run(ctx) })
	wg.Go(func() { s.sweep(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		s.workers.Wait()
	})
	return s, n
}

func (n *fakeNode) apply(cs ...*fsm.Command) {
	n.t.Helper()
	batch := fsm.NewBatch(nil, 1_000_000)
	for _, c := range cs {
		batch = fsm.AppendToBatch(batch, fsm.AppendCommand(nil, c))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.applyLocked(batch)
}

func (n *fakeNode) applyLocked(batch []byte) {
	n.index++
	if err := n.m.ApplyEntry(n.index, fakeTerm, batch); err != nil {
		n.t.Errorf("apply: %v", err)
	}
}

// flush applies what is queued, as one entry.
func (n *fakeNode) flushLocked() {
	if n.held || len(n.queue) == 0 {
		return
	}
	batch := fsm.NewBatch(nil, 1_000_000)
	for _, c := range n.queue {
		batch = fsm.AppendToBatch(batch, c.cmd)
	}
	n.queue = nil
	n.applyLocked(batch)
}

// hold lets nothing be applied until release.
func (n *fakeNode) hold() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held = true
}

func (n *fakeNode) release() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held = false
	n.flushLocked()
}

func (n *fakeNode) Submit(line fsm.LineRef, seq uint64, cmd []byte, w cluster.Waiter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := fakeKey{line, seq}
	if w != nil {
		n.waiters[key] = w
	}
	n.queue = append(n.queue, fakeCommand{cmd, key})
	n.flushLocked()
}

func (n *fakeNode) Propose(c *fsm.Command, w cluster.Waiter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seq++
	c.Line, c.Seq = fsm.LineRef{Server: "n1~1", Boot: 1}, n.seq
	key := fakeKey{c.Line, c.Seq}
	n.waiters[key] = w
	n.queue = append(n.queue, fakeCommand{fsm.AppendCommand(nil, c), key})
	n.flushLocked()
}

func (n *fakeNode) DropLine(session.ID, uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dropped++
}

func (n *fakeNode) MayWrite(fsm.LineRef) error { return n.Overloaded() }

func (n *fakeNode) Overloaded() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loads++
	return n.loadErr
}

func (n *fakeNode) load(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loadErr = err
}

func (n *fakeNode) Formed() error { return n.formErr }

func (n *fakeNode) Heard(session.ID, uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard++
}

func (n *fakeNode) Beat(_ session.ID, _ uint64, done func(error)) { done(n.beatErr) }

func (n *fakeNode) Acknowledge(_ session.ID, seq uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.acks = append(n.acks, seq)
}

func (n *fakeNode) StaleAge() time.Duration { return n.age }

func (n *fakeNode) Linearize(ctx context.Context) error {
	n.mu.Lock()
	n.rounds++
	round := n.round
	n.mu.Unlock()
	if round != nil {
		select {
		case <-round:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.roundOK
}

// Applied and the rest of fsm.Hook do what a cluster.Node does: the server
// first, then who waits.
func (n *fakeNode) Applied(r *fsm.Result, changes []znode.Change) {
	n.s.hub.Applied(r, changes)
	key := fakeKey{r.Line, r.Seq}
	if w := n.waiters[key]; w != nil && r.Status.Final() {
		delete(n.waiters, key)
		w.Applied(r)
	}
}

func (n *fakeNode) SessionOpened(id session.ID, by session.Protocol) { n.s.hub.SessionOpened(id, by) }

func (n *fakeNode) SessionEnded(id session.ID, by session.Protocol, r session.EndReason) {
	n.s.hub.SessionEnded(id, by, r)
}

func (n *fakeNode) EntryDone(i, term uint64, last zxid.ID) {
	if n.beforeDone != nil {
		n.beforeDone()
	}
	n.s.hub.EntryDone(i, term, last)
}

func (n *fakeNode) Restored(i uint64, last zxid.ID) { n.s.hub.Restored(i, last) }

// pipe is the server's end of a stream without a network.
type pipe struct {
	ctx context.Context
	in  chan *coordpb.SessionRequest
	out chan *coordpb.SessionReply
}

func (p *pipe) Context() context.Context { return p.ctx }

func (p *pipe) Recv() (*coordpb.SessionRequest, error) {
	select {
	case m, ok := <-p.in:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-p.ctx.Done():
		return nil, p.ctx.Err()
	}
}

func (p *pipe) Send(m *coordpb.SessionReply) error {
	select {
	case p.out <- cloneReply(m): // the sender uses it again
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

// piped is a client of a fakeServer.
type piped struct {
	t    testing.TB
	p    *pipe
	got  []*coordpb.Reply
	evs  []*coordpb.Event
	bye  *coordpb.Error
	done chan error
}

// connect opens a session over a pipe.
func connect(t testing.TB, s *Server) (*piped, *coordpb.Welcome) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	c := &piped{t: t, p: &pipe{ctx, make(chan *coordpb.SessionRequest, 16), make(chan *coordpb.SessionReply, 10_000)}, done: make(chan error, 1)}
	c.p.in <- &coordpb.SessionRequest{Hello: &coordpb.Hello{Mode: coordpb.Hello_MODE_OPEN, Nonce: nonce()}}
	s.workers.Go(func() {
		o := s.open(ctx, c.p)
		if o.err == nil {
			o.err = s.serve(ctx, o, c.p)
		}
		cancel()
		c.done <- o.err
	})
	select {
	case m := <-c.p.out:
		return c, m.GetWelcome()
	case <-time.After(patience):
		t.Fatal("no welcome")
	}
	return nil, nil
}

func (c *piped) send(rs ...*coordpb.Request) {
	c.p.in <- &coordpb.SessionRequest{Requests: rs}
}

var errNothing = errors.New("nothing came")

// next takes one message in, or returns errNothing after a moment.
func (c *piped) next(wait time.Duration) error {
	select {
	case m := <-c.p.out:
		c.got = append(c.got, m.GetReplies()...)
		c.evs = append(c.evs, m.GetEvents()...)
		if m.GetGoodbye() != nil {
			c.bye = m.GetGoodbye().GetError()
		}
		return nil
	case <-time.After(wait):
		return errNothing
	}
}

func (c *piped) until(what string, ok func() bool) {
	c.t.Helper()
	for !ok() {
		if err := c.next(patience); err != nil {
			c.t.Fatalf("%s: %v", what, err)
		}
	}
}

func (c *piped) reply(id uint64) *coordpb.Reply {
	c.t.Helper()
	var found *coordpb.Reply
	c.until("reply", func() bool {
		for _, r := range c.got {
			if r.GetSeq()+r.GetId() == id {
				found = r
			}
		}
		return found != nil
	})
	return found
}
