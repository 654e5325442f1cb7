package server

import (
	"context"
	"fmt"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

const (
	// requestValidity is how long a request id is remembered if the client does
	// not say.
	requestValidity = 10 * time.Minute
	// maxRequestID bounds a request id, in bytes.
	maxRequestID = 256
)

// Write makes one change for a caller without a session.
func (cs coordService) Write(ctx context.Context, req *coordpb.WriteRequest) (*coordpb.WriteReply, error) {
	s := cs.s
	start, op := s.clock.now(), opNameOf(req.GetWrite())
	reply, err := s.unaryWrite(ctx, req)
	if reply == nil {
		reply = &coordpb.WriteReply{}
	}
	if err != nil {
		reply.Error = s.faults.wire(err, 0, op)
	}
	s.metrics.done(&item{op: op, start: start}, fsm.Code(reply.GetError().GetCode()), s.clock.now(), nil)
	return reply, nil
}

func (s *Server) unaryWrite(ctx context.Context, req *coordpb.WriteRequest) (*coordpb.WriteReply, error) {
	release, err := s.enterUnary()
	if err != nil {
		return nil, err
	}
	defer release()
	g, err := s.auth.guest(ctx, req.GetAuth())
	if err != nil {
		return nil, err
	}
	w, err := decodeWrite(req.GetWrite(), &s.limits)
	if err != nil {
		return nil, err
	}
	if err := s.requestID(ctx, w, req); err != nil {
		return nil, err
	}
	if err := withheld(s.node.Overloaded(), givesBack(req.GetWrite()), len(req.GetWrite().GetOps()), s.giving); err != nil {
		s.metrics.throttled.overload.Add(1)
		return nil, err
	}
	w.Identities = g.identities
	reply := &coordpb.WriteReply{ValidUntilMs: w.ValidUntil}
	r, err := s.propose(ctx, &fsm.Command{Kind: fsm.CmdWrite, Write: w})
	if err != nil {
		return reply, err
	}
	fillWrite(reply, r)
	return reply, r.Err
}

// requestID fills the end of the validity in. It is cluster time, so every
// server would choose nearly the same.
func (s *Server) requestID(ctx context.Context, w *fsm.Write, req *coordpb.WriteRequest) error {
	id := req.GetRequestId()
	if id == "" {
		return nil
	}
	if len(id) > maxRequestID {
		return malformed("request id of %d bytes, at most %d are allowed", len(id), maxRequestID)
	}
	w.RequestID, w.ValidUntil = id, req.GetValidUntilMs()
	now, err := s.clusterTime(ctx)
	if err != nil {
		return err
	}
	if w.ValidUntil == 0 {
		w.ValidUntil = now + requestValidity.Milliseconds()
	}
	if w.ValidUntil-now > fsm.MaxRequestValidity.Milliseconds() {
		return fmt.Errorf("request id valid for more than %s: %w", fsm.MaxRequestValidity, znode.ErrBadArguments)
	}
	return nil
}

// clusterTime is the state's clock, in ms since 1970. A server that has not
// applied anything yet has none; it waits.
func (s *Server) clusterTime(ctx context.Context) (now int64, err error) {
	read := func(v *fsm.View) { now = v.Clock }
	if s.machine.View(read); now != 0 {
		return now, nil
	}
	if err := s.node.Linearize(ctx); err != nil {
		return 0, unavailable(err)
	}
	s.machine.View(read)
	return now, nil
}

func fillWrite(reply *coordpb.WriteReply, r *fsm.Result) {
	var enc encoder
	reply.Zxid = uint64(r.Zxid)
	reply.Results = enc.opResults(nil, r)
	reply.RepeatedAnswer = r.Deduplicated
	if r.ValidUntil != 0 {
		reply.ValidUntilMs = r.ValidUntil
	}
}

// propose offers a command on this server's own number line and waits for its
// result. When ctx ends first nobody knows what will become of it.
func (s *Server) propose(ctx context.Context, c *fsm.Command) (*fsm.Result, error) {
	done := make(chan *fsm.Result, 1)
	s.node.Propose(c, cluster.WaiterFunc(func(r *fsm.Result) { done <- r }))
	select {
	case r := <-done:
		return r, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("the call ended before its answer (%w): %w", ctx.Err(), session.ErrUnknownOutcome)
	case <-s.stopped:
		return nil, fmt.Errorf("this server is stopping: %w", session.ErrUnknownOutcome)
	}
}

// Read reads for a caller without a session.
func (cs coordService) Read(ctx context.Context, req *coordpb.ReadRequest) (*coordpb.ReadReply, error) {
	s := cs.s
	op, start := opNameOfRead(req.GetRead().GetKind()), s.clock.now()
	reply, err := s.unaryRead(ctx, req, start)
	if err != nil {
		reply = &coordpb.ReadReply{Error: s.faults.wire(err, 0, op)}
	}
	s.metrics.done(&item{op: op, start: start}, fsm.Code(reply.GetError().GetCode()), s.clock.now(), nil)
	return reply, nil
}

func (s *Server) unaryRead(ctx context.Context, req *coordpb.ReadRequest, start int64) (*coordpb.ReadReply, error) {
	release, err := s.enterUnary()
	if err != nil {
		return nil, err
	}
	defer release()
	g, err := s.auth.guest(ctx, req.GetAuth())
	if err != nil {
		return nil, err
	}
	if req.GetRead() == nil {
		return nil, malformed("a read without a read")
	}
	answered := make(chan item, 1)
	q := &reading{
		op: opNameOfRead(req.GetRead().GetKind()), start: start,
		caller: &znode.Caller{Identities: g.identities},
		read:   req.GetRead(), need: zxid.ID(req.GetRead().GetMinZxid()),
		answer: func(it item, _ int) { answered <- it },
		gone:   func() bool { return ctx.Err() != nil },
	}
	if err := q.check(&s.limits); err != nil {
		return nil, err
	}
	s.reader.submit([]*reading{q})
	select {
	case it := <-answered:
		var enc encoder
		reply := &coordpb.ReadReply{Zxid: uint64(it.zxid), Error: it.err}
		if it.read != nil {
			reply.Read = enc.readResult(it.read)
		}
		return reply, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.stopped:
		return nil, fsm.ErrShuttingDown
	}
}

// enterUnary takes a place among the calls being served, or refuses: a call
// cannot be held back like a stream.
func (s *Server) enterUnary() (release func(), err error) {
	if err := s.formed(); err != nil {
		return nil, err
	}
	if n := s.unary.Add(1); int(n) > s.limits.UnaryInFlight {
		s.unary.Add(-1)
		s.metrics.throttled.unary.Add(1)
		return nil, fmt.Errorf("%d calls are being served (%s): %w", n-1, settingUnaryInFlight, fsm.ErrOverloaded)
	}
	return func() { s.unary.Add(-1) }, nil
}
