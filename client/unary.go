package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
)

type requestIDKey struct{}

// WithRequestID makes a write repeatable, by this process or another one: the
// cluster answers a second request with the same id and content from its memory
// instead of applying it again, for as long as the id is valid (10 minutes unless
// the cluster says otherwise). The id with other content is ErrRequestReused;
// after its validity it is ErrRequestTooOld. Such a write is made outside of the
// session, so it cannot create ephemeral nodes and has no order among the
// session's writes.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// unaryWrite makes a write outside of a session. With a request id it is
// repeated at one server after the other until there is an answer or ctx ends.
// Without one it is sent once, and only to a server that was reached.
func (c *Client) unaryWrite(ctx context.Context, op, path string, w *coordpb.Write, id string) (*coordpb.Reply, error) {
	if err := c.session.usable(); err != nil {
		return nil, &Error{Op: op, Path: path, Err: err, Index: -1}
	}
	req := &coordpb.WriteRequest{Write: w, RequestId: id, Auth: c.core.auth()}
	t := newTries(c.core, c.session)
	for {
		reply, sent, err := t.write(ctx, req)
		if code := reply.GetError().GetCode(); err == nil && (!passing(code) || lasting(callWrite, code)) {
			c.core.saw(reply.Zxid)
			out := &coordpb.Reply{Zxid: reply.Zxid, Error: reply.Error, Results: reply.Results}
			if failed(reply.Error) {
				return out, fromProto(op, path, t.last, reply.Error)
			}
			return out, nil
		}
		if reply.GetValidUntilMs() != 0 {
			req.ValidUntilMs = reply.ValidUntilMs
		}
		maybe := sent && err != nil
		t.maybe = t.maybe || maybe
		if maybe && id == "" || ctx.Err() != nil || !t.again(ctx) {
			return nil, t.failure(ctx, op, path)
		}
	}
}

// usable is nil unless the session is over: then its client does nothing more.
func (s *Session) usable() error {
	s.checkDeadline()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usableLocked()
}

// usableLocked is usable for callers that hold the session's lock.
func (s *Session) usableLocked() error {
	switch {
	case s.end != nil:
		return s.callError()
	case s.closing:
		return ErrClosed
	default:
		return nil
	}
}

func (c *core) auth() []*coordpb.Auth {
	out := make([]*coordpb.Auth, 0, len(c.opts.auth))
	for _, a := range c.opts.auth {
		out = append(out, &coordpb.Auth{Scheme: a.scheme, Credential: a.secret})
	}
	return out
}

// tries goes from endpoint to endpoint with one call.
type tries struct {
	core   *core
	first  int // index of the first endpoint tried
	n      int // attempts so far
	last   string
	maybe  bool // some attempt may have been done
	seen   map[string]Attempt
	failed int // rounds

	reached bool           // some server was, in this round
	told    *coordpb.Error // in this round: the refusal that asks for the longest pause
}

// newTries begins at the endpoint that serves the session, as it is known to
// answer.
func newTries(c *core, s *Session) *tries {
	t := &tries{core: c, seen: map[string]Attempt{}}
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, e := range c.endpoints {
			if s.conn != nil && s.conn.endpoint == e {
				t.first = i
			}
		}
	}
	return t
}

// endpoint is the one to try now.
func (t *tries) endpoint() string { return t.core.endpoints[(t.first+t.n)%len(t.core.endpoints)] }

func (t *tries) write(ctx context.Context, req *coordpb.WriteRequest) (reply *coordpb.WriteReply, sent bool, err error) {
	sent, err = t.call(ctx, func(ctx context.Context, l *link) (passed *coordpb.Error, err error) {
		reply, err = coordpb.NewCoordClient(l.cc).Write(ctx, req)
		return reply.GetError(), err
	})
	return reply, sent, err
}

// call makes one attempt at the present endpoint. sent is false if the server
// was certainly not reached.
func (t *tries) call(ctx context.Context, f func(context.Context, *link) (*coordpb.Error, error)) (sent bool, err error) {
	e, began := t.endpoint(), time.Now()
	t.last = e
	defer func() {
		if err != nil {
			t.seen[e] = Attempt{Endpoint: e, At: began, Took: time.Since(began), Err: err}
		}
	}()
	l, err := t.core.links.get(e)
	if err != nil {
		return false, err
	}
	limit := connectTimeout(t.failed)
	ready, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no connection within %s", limit))
	err = l.ready(ready)
	cancel()
	if err != nil {
		return false, err
	}
	t.reached = true
	refused, err := f(ctx, l)
	if passing(refused.GetCode()) {
		t.seen[e] = Attempt{Endpoint: e, At: began, Took: time.Since(began), Err: fromProto("", "", e, refused).Err}
		t.told = longer(t.told, refused)
	}
	// A server that refuses a call without looking at it has not done it.
	notSeen := status.Code(err) == codes.Unimplemented || status.Code(err) == codes.Unauthenticated
	return !notSeen, plain(err)
}

// again moves on to the next endpoint, after a pause if all were tried. It
// returns false if ctx has ended or no repetition can help.
func (t *tries) again(ctx context.Context) bool {
	t.n++
	if t.n%len(t.core.endpoints) != 0 {
		return ctx.Err() == nil
	}
	t.failed++
	hopelessAll := true
	for _, a := range t.seen {
		hopelessAll = hopelessAll && hopeless(a.Err)
	}
	if hopelessAll || t.core.opts.failFast && !t.reached {
		return false
	}
	told := t.told
	t.reached, t.told = false, nil
	sleep(ctx, asTold(told, t.core.opts.retry.wait(t.failed)))
	return ctx.Err() == nil
}

// longer is the refusal that asks for the longer pause. Both may be nil.
func longer(a, b *coordpb.Error) *coordpb.Error {
	if b.GetRetryAfterMs() > a.GetRetryAfterMs() {
		return b
	}
	return a
}

// failure is the error after the last attempt.
func (t *tries) failure(ctx context.Context, op, path string) error {
	e := &Error{Op: op, Path: path, Err: ErrUnavailable, Index: -1}
	for _, ep := range t.core.endpoints {
		if a, ok := t.seen[ep]; ok {
			e.Tried = append(e.Tried, a)
		}
	}
	if t.maybe {
		e.Err, e.Outcome = ErrUnknownOutcome, MaybeDone
	}
	if err := ctx.Err(); err != nil {
		e.Err = &interrupted{err, e.Err}
	}
	return e
}
