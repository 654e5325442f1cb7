package server

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

const (
	// helloTime is how long a new stream may take to say who it is.
	helloTime = 10 * time.Second
	// goodbyeTime is how long the last messages of a stream may take to go out.
	goodbyeTime = 2 * time.Second
)

// coordService implements coordpb.CoordServer.
type coordService struct {
	coordpb.UnimplementedCoordServer
	s *Server
}

// Session serves one stream. The handler only waits: a receiver and a sender do
// the work, so that neither a client that reads nothing nor one that says
// nothing can keep it from ending.
func (cs coordService) Session(stream grpc.BidiStreamingServer[coordpb.SessionRequest, coordpb.SessionReply]) error {
	s := cs.s
	if !s.streams.begin() {
		return statusOf(fsm.ErrShuttingDown)
	}
	defer s.streams.done()
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	hello := time.AfterFunc(helloTime, func() { cancel(errSilent) })
	defer hello.Stop()

	opened := make(chan opening, 1)
	s.workers.Go(func() {
		var o opening
		err := s.guarded("open", func() error { o = s.open(ctx, stream); return nil })
		if err != nil {
			o = opening{err: err}
		}
		opened <- o
	})
	select {
	case o := <-opened:
		hello.Stop()
		if o.err != nil {
			return o.end(s.cfg.Cluster.Name, stream)
		}
		return s.serve(ctx, o, stream)
	case <-ctx.Done():
		s.workers.Go(func() { // an opening that comes too late
			if o := <-opened; o.conn != nil {
				s.drop(o.conn)
			}
		})
		return statusOf(context.Cause(ctx))
	}
}

// errSilent ends a stream that never said hello.
var errSilent = malformed("no hello within %s", helloTime)

// sessionStream is what the parts of a session need of a gRPC stream.
type sessionStream interface {
	source
	sink
	Context() context.Context
}

// opening is the outcome of a handshake.
type opening struct {
	conn  *conn
	first *coordpb.SessionRequest // the rest of the first message
	err   error
}

// end tells a client why it was not let in.
func (o opening) end(server string, out sink) error {
	w := &coordpb.Welcome{Error: wireError(o.err), Server: server}
	var held *session.IdentityError
	if errors.As(o.err, &held) {
		w.Current = uint64(held.Current)
	}
	var ended *endedError
	if errors.As(o.err, &ended) {
		w.NextSeq = ended.next
	}
	return out.Send(&coordpb.SessionReply{Welcome: w})
}

// serve runs an open stream to its end.
func (s *Server) serve(ctx context.Context, o opening, stream sessionStream) error {
	c := o.conn
	defer s.drop(c)
	received := make(chan error, 1)
	sent := make(chan error, 1)
	s.workers.Go(func() {
		received <- s.guarded("receive", func() error { return c.receive(ctx, o.first, stream) })
	})
	s.workers.Go(func() {
		out := sender{c: c, out: stream}
		sent <- s.guarded("send", func() error { return out.run(c.stopped) })
	})
	select {
	case err := <-received:
		if err == nil || errors.Is(err, errStopped) || ctx.Err() != nil {
			c.stop() // the client has closed its side, or is gone
		} else {
			s.log.Debug("stream ended for what the client sent", "session", c.session, "peer", c.guest.address, "err", err)
			c.end(err)
		}
	case <-c.stopped:
	case err := <-sent:
		return streamEnd(err)
	}
	select {
	case err := <-sent:
		return streamEnd(err)
	case <-time.After(goodbyeTime): // it reads nothing; the transport drops the rest
		return statusOf(fsm.ErrSlowConsumer)
	case <-ctx.Done():
		return nil
	}
}

// streamEnd is the end of a stream whose sender has finished: the reason was
// said in the goodbye.
func streamEnd(error) error { return nil }

// drop forgets a stream. Its writes may still be applied; nobody here waits for
// their answers.
func (s *Server) drop(c *conn) {
	c.stop()
	c.out.end(nil)
	id, gen := c.give()
	s.hub.leave(c, id)
	if id != 0 {
		s.node.DropLine(id, gen)
		s.logEnd(id, c.guest.address, c.why.Load())
	}
}

// logEnd tells of the end of a session that was connected here; the end of a
// stream alone is no news.
func (s *Server) logEnd(id session.ID, peer string, why *error) {
	args := []any{"session", id, "peer", peer}
	if why != nil {
		args = append(args, "err", *why)
	}
	var ended *sessionEnd
	if why != nil && errors.As(*why, &ended) {
		s.log.Info("session ended", append(args, "event", "session_ended", "reason", ended.reason.String())...)
		return
	}
	s.log.Debug("stream closed", append(args, "event", "stream_closed")...)
}
