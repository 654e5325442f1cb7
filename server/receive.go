package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

// errStopped ends a receiver whose stream is already being ended.
var errStopped = errors.New("stream ended")

// malformed is a message that no client of ours sends.
func malformed(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), fsm.ErrMalformed)
}

// source is the part of a gRPC stream that the receiver needs.
type source interface {
	Recv() (*coordpb.SessionRequest, error)
}

// receive takes messages until the stream ends, beginning with the one that
// came with the hello. Requests are handled in the
// order they came; when too much is unanswered it does not read on, which the
// client feels as back-pressure and never as an error.
func (c *conn) receive(ctx context.Context, first *coordpb.SessionRequest, in source) error {
	if err := c.take(ctx, first); err != nil {
		return err
	}
	for {
		msg, err := in.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := c.take(ctx, msg); err != nil {
			return err
		}
	}
}

// take handles one message.
func (c *conn) take(ctx context.Context, msg *coordpb.SessionRequest) error {
	if msg.GetHello() != nil {
		return malformed("a second hello")
	}
	if c.session != 0 {
		c.s.node.Heard(c.session, c.gen)
	}
	if c.acknowledge(msg.GetAck()) && len(msg.GetRequests()) == 0 {
		c.s.node.Acknowledge(c.session, c.acked.Load()) // no write will carry it
	}
	c.backlog = append(c.backlog, msg.GetRequests()...)
	for len(c.backlog) > 0 {
		n, err := c.admit(ctx)
		if err != nil {
			return err
		}
		if n == 0 {
			return c.tooFarAhead()
		}
		if err := c.handle(ctx, c.backlog[:n]); err != nil {
			return err
		}
		clear(c.backlog[:n])
		if c.backlog = c.backlog[n:]; len(c.backlog) == 0 {
			c.backlog = nil
		}
	}
	return nil
}

const (
	// maxAnswered is how many bytes of answers the cluster keeps for a client
	// that does not acknowledge, before its stream is ended.
	maxAnswered = 16 * session.MaxUnackedBytes
	// maxBacklog is how many requests are held for a client that must
	// acknowledge first, as a multiple of the requests in flight.
	maxBacklog = 2
)

// tooFarAhead is called when nothing can be done before the client acknowledges
// what it has got. Its acknowledgements come in what it sends next, so reading
// goes on, within a bound.
func (c *conn) tooFarAhead() error {
	if len(c.backlog) <= maxBacklog*c.s.limits.RequestsInFlight {
		return nil
	}
	return &limitError{
		kind: fsm.ErrLimit, what: "requests behind answers that were not acknowledged",
		have: int64(len(c.backlog)), most: int64(maxBacklog * c.s.limits.RequestsInFlight), setting: settingInFlight,
	}
}

// admit waits until requests may be handled and returns how many of the backlog.
// It returns 0 if an acknowledgement must come first.
func (c *conn) admit(ctx context.Context) (int, error) {
	for {
		room := c.s.limits.RequestsInFlight - int(c.unsent.Load())
		if room > 0 {
			n, wait := c.acknowledged(min(room, len(c.backlog)))
			if n > 0 || !wait {
				return n, nil
			}
		}
		select {
		case <-c.freed:
		case <-c.stopped:
			return 0, errStopped
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// acknowledged returns how many of the next n requests the client's
// acknowledgements allow. With 0, wait says that it is enough to wait for
// answers to be sent: past a bound of unacknowledged bytes, writes go one by one.
func (c *conn) acknowledged(n int) (allowed int, wait bool) {
	c.mu.Lock()
	answered := c.answered
	c.mu.Unlock()
	slow := answered >= session.MaxUnackedBytes
	for i, r := range c.backlog[:n] {
		if r.GetSeq() == 0 {
			continue
		}
		if r.GetSeq() > c.acked.Load()+session.MaxUnacked {
			return i, false
		}
		if slow {
			if i > 0 || c.unsent.Load() > 0 {
				return i, i == 0
			}
			return 1, false
		}
	}
	return n, false
}

// acknowledge notes that the client has the answers up to ack. It reports
// whether that is news.
func (c *conn) acknowledge(ack uint64) bool {
	if ack = min(ack, c.applied.Load()); ack <= c.acked.Load() {
		return false
	}
	c.acked.Store(ack)
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.answers) > 0 && c.answers[0].seq <= ack {
		c.answered -= c.answers[0].size
		c.answers = c.answers[1:]
	}
	if len(c.answers) == 0 {
		c.answers = nil
	}
	return true
}

// handle passes requests on: writes to the node, reads to the reader.
func (c *conn) handle(ctx context.Context, rs []*coordpb.Request) error {
	c.mu.Lock()
	answered := c.answered
	c.mu.Unlock()
	if answered > maxAnswered {
		return &limitError{kind: fsm.ErrLimit, what: "bytes of answers that were not acknowledged", have: int64(answered), most: maxAnswered, setting: settingInFlight}
	}
	start := c.s.clock.now()
	mayWait := c.throttle != nil || c.s.node.MayWrite(c.line) != nil
	var reads []*reading
	for _, r := range rs {
		var err error
		if mayWait && r.GetWrite() != nil {
			c.s.reader.submit(reads) // they need not wait for this
			reads = nil
			if c.declined, err = c.pace(ctx, r.GetWrite()); err != nil {
				return err
			}
		}
		q, err := c.dispatch(r, start)
		c.declined = nil
		if err != nil {
			return err
		}
		if q != nil {
			reads = append(reads, q)
		}
	}
	c.s.reader.submit(reads)
	return nil
}

// overloadPause is how often a stream looks whether an overload has passed.
const overloadPause = 10 * time.Millisecond

// pace holds a session to its writes per second, and back while the cluster
// takes no more. No write is ever refused for that, so the numbers behind it are
// not stuck; the client feels it as a slow stream. Full disks are not over in a
// moment: then the write is declined, which takes its number (command).
func (c *conn) pace(ctx context.Context, w *coordpb.Write) (declined, err error) {
	for {
		err := withheld(c.s.node.MayWrite(c.line), givesBack(w), len(w.GetOps()), c.giving)
		if err == nil {
			break
		}
		if c.s.room.declines(err) {
			return err, nil
		}
		c.s.metrics.throttled.overload.Add(1)
		if err := c.pause(ctx, overloadPause); err != nil {
			return nil, err
		}
	}
	if c.throttle == nil {
		return nil, nil
	}
	wait := c.throttle.Reserve().Delay()
	if wait <= 0 {
		return nil, nil
	}
	c.s.metrics.throttled.rate.Add(1)
	return nil, c.pause(ctx, wait)
}

// givesBack says that a write only deletes: the state does not grow by it.
func givesBack(w *coordpb.Write) bool {
	return !slices.ContainsFunc(w.GetOps(), func(op *coordpb.Op) bool {
		return op.GetKind() != coordpb.Op_KIND_DELETE && op.GetKind() != coordpb.Op_KIND_CHECK
	})
}

func (c *conn) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-c.stopped:
		return errStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// dispatch starts one request. A read is returned, to be handed on with others.
func (c *conn) dispatch(r *coordpb.Request, start int64) (*reading, error) {
	kinds := 0
	for _, is := range []bool{r.GetWrite() != nil, r.GetSkip() != nil, r.GetClose(), r.GetRead() != nil, r.GetWatch() != nil, r.GetUnwatch()} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		return nil, malformed("a request asks for %d things instead of one", kinds)
	}
	if r.GetRead() == nil && r.GetWatch() == nil && !r.GetUnwatch() {
		return nil, c.write(r, start)
	}
	if r.GetSeq() != 0 {
		return nil, malformed("a read has the number %d of a write", r.GetSeq())
	}
	c.unsent.Add(1)
	if r.GetUnwatch() {
		c.unwatch(r.GetId(), start)
		return nil, nil
	}
	q := newReading(c, r, start)
	if err := q.check(&c.s.limits); err != nil {
		c.refuse(q.id, q.op, start, err)
		return nil, nil
	}
	if q.watch != nil {
		c.s.hub.expect(c, q.id)
	}
	return q, nil
}

func (c *conn) unwatch(id uint64, start int64) {
	c.s.hub.remove(c, id) // an id that is not there is gone already
	c.out.reply(item{id: id, op: opUnwatch, start: start, zxid: c.s.hub.firedZxid()}, 0)
}

// parkUntil lets a read wait for the write it comes behind. It reports false if
// that is applied.
func (c *conn) parkUntil(q *reading) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.applied.Load() >= q.after {
		return false
	}
	c.parked.add(q.after, q)
	return true
}

// postpone keeps a read back while much waits to be sent: a client that asks
// for more than it takes gets its answers later, and costs no memory meanwhile.
func (c *conn) postpone(q *reading) bool {
	if c.out.room() > 0 {
		return false
	}
	c.mu.Lock()
	c.postponed = append(c.postponed, q)
	c.mu.Unlock()
	if c.out.room() > 0 { // the sender may have been quicker
		c.resumePostponed()
	}
	return true
}

func (c *conn) resumePostponed() {
	c.mu.Lock()
	qs := c.postponed
	c.postponed = nil
	c.mu.Unlock()
	c.s.reader.wake(qs)
}
