package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coordd/coord/api/coordpb"
)

// submit queues a call. Its answer comes in any case, at the latest when the
// session is over.
func (s *Session) submit(c *call) error {
	c.measure()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(); err != nil {
		return err
	}
	if err := s.fits(c); err != nil {
		return err
	}
	switch c.kind {
	case callWrite:
		s.line.waiting = append(s.line.waiting, c)
	case callRead:
		s.queueRead(c)
	default:
		s.outbox = append(s.outbox, c)
	}
	s.kickLocked()
	return nil
}

// queueRead puts a read where its mode wants it: a read in session order comes
// behind the writes that wait for a number. mu is held.
func (s *Session) queueRead(c *call) {
	s.lastID++
	c.req.Id = s.lastID
	s.calls[c.req.Id] = c
	if c.req.Read.Mode == coordpb.ReadMode_READ_MODE_SESSION {
		if len(s.line.waiting) > 0 {
			c.behind = true
			s.line.waiting = append(s.line.waiting, c)
			return
		}
		c.req.Read.AfterSeq = s.line.last()
	}
	s.outbox = append(s.outbox, c)
}

// fits refuses what no server would take: a message over the frame limit breaks
// the connection, and would break the next one too. mu is held.
func (s *Session) fits(c *call) error {
	frame := s.limits.GetFrameBytes()
	if frame <= 0 {
		frame = defaultFrameBytes
	}
	if int64(c.size) > frame-frameSlack {
		return &Error{
			Err: ErrTooLarge, Limit: "limits.frame_size", Index: -1,
			Detail: fmt.Sprintf("request of %d bytes, at most %d fit (limits.frame_size)", c.size, frame-frameSlack),
		}
	}
	return nil
}

const (
	defaultFrameBytes = 4 << 20
	frameSlack        = 1 << 10 // what surrounds a request in its message
)

// await waits until the call is over (nil) or ctx has ended and the call was
// withdrawn. sent says then whether it may have been done or may yet be.
func (s *Session) await(ctx context.Context, c *call) (err error, sent bool) {
	select {
	case <-c.done:
		return nil, false
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.over {
		return nil, false
	}
	switch {
	case c.kind != callWrite:
		s.abandon(c)
		delete(s.calls, c.req.Id)
	case c.req.Seq == 0:
		s.abandon(c)
	default:
		s.line.skip(c)
		s.kickLocked()
		return ctx.Err(), true
	}
	return ctx.Err(), false
}

// abandon marks a call that is not to be sent any more. While nothing can be
// sent such calls pile up, so they are swept out now and then. mu is held.
func (s *Session) abandon(c *call) {
	c.dropped = true
	if s.dropped++; s.dropped < sweepEvery {
		return
	}
	s.dropped = 0
	left := func(c *call) bool { return c.dropped }
	s.line.waiting = slices.DeleteFunc(s.line.waiting, left)
	s.outbox = slices.DeleteFunc(s.outbox, left)
	s.held = slices.DeleteFunc(s.held, left)
}

// sweepEvery is how many abandoned calls may lie in the queues.
const sweepEvery = 256

// do runs a call to its end or to the end of ctx.
func (s *Session) do(ctx context.Context, op, path string, c *call) (*coordpb.Reply, error) {
	c.done = make(chan struct{})
	if err := ctx.Err(); err != nil {
		return nil, s.left(op, path, c, err, false)
	}
	if err := s.submit(c); err != nil {
		return nil, located(err, op, path)
	}
	if err, sent := s.await(ctx, c); err != nil {
		return nil, s.left(op, path, c, err, sent)
	}
	return c.reply, s.outcome(op, path, c)
}

// left describes a call whose context has ended, and what it was waiting for.
func (s *Session) left(op, path string, c *call, err error, sent bool) error {
	e := &Error{Op: op, Path: path, Err: err, Index: -1, Tried: s.waitingFor(c)}
	if c.kind == callWrite && sent {
		e.Err, e.Outcome = &interrupted{err, ErrUnknownOutcome}, MaybeDone
	}
	return e
}

// waitingFor says why there is no answer: who was asked, and what came back.
func (s *Session) waitingFor(c *call) []Attempt {
	tried := s.attempts()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return tried
	}
	why := errNoAnswer
	if c.held != nil {
		why = fromProto("", "", s.conn.server, c.held).Err
	}
	return []Attempt{{Endpoint: s.conn.endpoint, At: time.Now(), Err: why}}
}

// outcome is the error of a call that is over, nil if it has succeeded.
func (s *Session) outcome(op, path string, c *call) error {
	if c.err != nil {
		e := &Error{Op: op, Path: path, Err: c.err, Index: -1}
		if c.maybe {
			e.Err, e.Outcome = &interrupted{c.err, ErrUnknownOutcome}, MaybeDone
		}
		return e
	}
	if failed(c.reply.GetError()) {
		return fromProto(op, path, c.node, c.reply.Error)
	}
	return nil
}

// located names operation and path in an error that was made without them.
func located(err error, op, path string) error {
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Op: op, Path: path, Err: err, Index: -1}
	}
	e.Op, e.Path = op, path
	return e
}
