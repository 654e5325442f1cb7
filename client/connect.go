package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
)

const (
	// hearPatience is how long a server may be silent with a request
	// outstanding before the session looks for another one. It doubles with
	// each silent server, so that a cluster that is slow as a whole is not
	// asked to move sessions around, and is itself again after an answer.
	hearPatience = 300 * time.Millisecond
	maxPatience  = 5 * time.Second
	// lonePatience is the least patience where there is no other endpoint.
	lonePatience = 2 * time.Second
	// maxTakeOvers bounds how often an opening session asks again who holds its
	// identity, within one attempt.
	maxTakeOvers = 5
)

// maintain keeps the session on some server until it is over.
func (s *Session) maintain(ctx context.Context) {
	f := finder{s: s, patience: hearPatience, next: rand.IntN(len(s.core.endpoints))}
	var cur *conn
	for ctx.Err() == nil {
		found := f.find(ctx, cur)
		if cur != nil && found != cur {
			s.drop(ctx, cur)
		}
		if cur = found; cur == nil {
			continue
		}
		if s.supervise(ctx, &f, cur) {
			s.drop(ctx, cur)
			cur = nil
		}
	}
	if cur != nil {
		cur.close()
	}
}

// drop gives up a connection that is lost or was replaced. ctx is the session's.
func (s *Session) drop(ctx context.Context, cn *conn) {
	if cn.lost() {
		switch {
		case gone(cn.bye.GetCode()):
			s.refused(cn.bye)
		case cn.bye == nil && ctx.Err() == nil:
			s.core.streams.retire(cn.link) // it broke, and may not know it yet
		}
		s.suspend(cn)
	}
	cn.close()
}

// suspend takes note that cn is lost.
func (s *Session) suspend(cn *conn) {
	s.mu.Lock()
	var over ended
	if s.conn == cn {
		s.tried[cn.endpoint] = Attempt{Endpoint: cn.endpoint, At: time.Now(), Err: cn.err}
		s.conn = nil
		for w := range s.all {
			w.detach(cn)
		}
		if s.established {
			s.setState(Suspended)
		}
		if status.Code(cn.err) == codes.ResourceExhausted {
			s.failReads(cn.err, &over)
		}
	}
	s.mu.Unlock()
	over.tell()
	s.core.opts.log.Debug("connection lost", "peer", cn.endpoint, "err", cn.err)
}

// failReads ends the reads that are out: one of them has an answer that is too
// large to be received, and asking for it again would break every connection
// that comes after this one. mu is held.
func (s *Session) failReads(err error, over *ended) {
	for id, c := range s.calls {
		if c.kind != callRead {
			continue
		}
		delete(s.calls, id)
		over.add(c, nil, fmt.Errorf("%w: %w", ErrTooLarge, err), false)
	}
}

// note remembers what came back from an endpoint.
func (s *Session) note(endpoint string, began time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried[endpoint] = Attempt{Endpoint: endpoint, At: began, Took: time.Since(began), Err: err}
}

// finder looks for a server that takes the session. It belongs to maintain.
type finder struct {
	s        *Session
	next     int // index of the endpoint to try next
	failed   int // rounds without success, in a row
	kept     int // rounds in a row after which the old connection was kept
	patience time.Duration
	told     *coordpb.Error // in this round: the refusal that asks for the longest pause
}

// find tries the endpoints in turn until one has welcomed the session, round by
// round with growing pauses. If keep is given and alive it looks at the others
// for one round only and falls back on keep. It returns nil if ctx has ended or
// the session is over.
func (f *finder) find(ctx context.Context, keep *conn) *conn {
	for ctx.Err() == nil {
		cn, over := f.round(ctx, keep)
		switch {
		case cn != nil:
			f.failed, f.kept = 0, 0
			return cn
		case over:
			return nil
		case keep != nil && keep.lost():
			return nil // maintain comes back without it
		case keep != nil:
			f.kept++
			return keep
		}
		f.failed++
		if f.s.endRound() {
			return nil
		}
		told := f.told
		f.told = nil
		sleep(ctx, asTold(told, f.s.core.opts.retry.wait(f.failed)))
	}
	return nil
}

// endRound decides after a round without success whether to go on.
func (s *Session) endRound() (over bool) {
	s.mu.Lock()
	closing, established, hopelessAll, owed := s.closing, s.established, len(s.tried) > 0, false
	for _, a := range s.tried {
		hopelessAll = hopelessAll && hopeless(a.Err)
		owed = owed || errors.As(a.Err, new(*silence))
	}
	s.mu.Unlock()
	switch {
	case closing:
		s.finish(ByClient, "")
		return true
	case !established && (hopelessAll || s.core.opts.failFast && !owed):
		s.fail(&Error{Op: opDial, Err: ErrUnavailable, Tried: s.attempts(), Index: -1})
		return true
	default:
		return false
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// round tries each endpoint once. over: the session has ended.
func (f *finder) round(ctx context.Context, keep *conn) (cn *conn, over bool) {
	n := len(f.s.core.endpoints)
	for range n {
		if ctx.Err() != nil {
			return nil, true
		}
		e := f.s.core.endpoints[f.next%n]
		f.next = (f.next + 1) % n
		if keep != nil && e == keep.endpoint && n > 1 && f.kept == 0 {
			continue // if nobody else will do, a new connection to it may
		}
		began := time.Now()
		cn, err := f.try(ctx, e)
		if err == nil {
			return cn, false
		}
		f.s.note(e, began, err)
		f.s.core.opts.log.Debug("server does not take the session", "peer", e, "err", err)
		var r *refusal
		if errors.As(err, &r) {
			if passing(r.proto.GetCode()) {
				f.told = longer(f.told, r.proto)
			}
			if gone(r.proto.GetCode()) {
				f.s.noteUnapplied(r.nextSeq)
				if keep != nil {
					keep.lastWords(ctx)
				}
			}
			if f.s.judge(r) {
				return nil, true
			}
		}
		if keep != nil && keep.lost() {
			return nil, false
		}
	}
	return nil, false
}

// lastWords gives a connection of a session that has ended elsewhere the time to
// deliver the answers that are on their way, so that no write is in doubt for
// nothing.
func (cn *conn) lastWords(ctx context.Context) {
	t := time.NewTimer(lastWordsWait)
	defer t.Stop()
	select {
	case <-cn.done:
	case <-t.C:
	case <-ctx.Done():
	}
}

const lastWordsWait = 250 * time.Millisecond

// refusal is a Welcome with an error.
type refusal struct {
	err     *Error
	proto   *coordpb.Error
	nextSeq uint64 // 0 = not said
	current uint64 // the session that holds the identity
}

func (r *refusal) Error() string { return r.err.reason() }
func (r *refusal) Unwrap() error { return r.err }

// judge decides whether a refusal is the last word on the session.
func (s *Session) judge(r *refusal) (final bool) {
	code := r.proto.GetCode()
	s.mu.Lock()
	established := s.established
	s.authLost = code == coordpb.Code_CODE_AUTH_FAILED
	s.mu.Unlock()
	switch {
	case gone(code) && established:
		s.refused(r.proto)
		return true
	case gone(code):
		s.startOver() // it ended before anybody knew of it
		return false
	case passing(code), code == coordpb.Code_CODE_SESSION_MOVED, code == coordpb.Code_CODE_INTERNAL:
		return false
	case established:
		return code == coordpb.Code_CODE_WRONG_PROTOCOL && s.giveUp(r)
	default:
		e := *r.err
		e.Tried = s.attempts()
		s.fail(&e)
		return true
	}
}

func (s *Session) giveUp(r *refusal) bool {
	s.finish(Restore, r.proto.GetMessage())
	return true
}

// startOver forgets a session that was never used.
func (s *Session) startOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.secret, s.connection, s.nonceSent, s.unapplied = 0, nil, 0, 0, 0
	s.nonce = newNonce()
	s.deadline.Store(0)
}

// try makes one attempt at one endpoint.
func (f *finder) try(ctx context.Context, endpoint string) (*conn, error) {
	s := f.s
	l, err := s.core.streams.take(endpoint)
	if err != nil {
		return nil, err
	}
	cn, err := f.dial(ctx, l)
	if err == nil {
		return cn, nil
	}
	var r *refusal
	if ctx.Err() == nil && !errors.As(err, &r) { // who refuses is at least there
		s.core.streams.retire(l)
	}
	s.core.streams.release(l)
	return nil, err
}

func (f *finder) dial(ctx context.Context, l *link) (*conn, error) {
	limit := connectTimeout(f.failed)
	ready, cancelReady := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no connection within %s", limit))
	err := l.ready(ready)
	cancelReady()
	if err != nil {
		return nil, err
	}
	for range maxTakeOvers {
		cn, r, err := f.greet(ctx, l)
		if err != nil {
			return nil, err
		}
		if r == nil {
			return cn, nil
		}
		if r.proto.GetCode() != coordpb.Code_CODE_IDENTITY_IN_USE || r.current == 0 {
			return nil, r
		}
		f.s.mu.Lock()
		f.s.takeOver = r.current
		f.s.mu.Unlock()
	}
	return nil, errors.New("the identity changes hands faster than it can be taken over")
}

// greet sends a Hello and waits for the Welcome.
func (f *finder) greet(ctx context.Context, l *link) (*conn, *refusal, error) {
	s := f.s
	streamCtx, cancel := context.WithCancel(ctx)
	patience := f.patience
	if len(s.core.endpoints) == 1 {
		patience = max(patience, lonePatience)
	}
	waiting := time.AfterFunc(patience, cancel)
	stream, err := coordpb.NewCoordClient(l.cc).Session(streamCtx)
	if err != nil {
		cancel()
		return nil, nil, f.silent(l, waiting, patience, err)
	}
	hello, sent := s.hello()
	if err = stream.Send(&coordpb.SessionRequest{Hello: hello}); err == nil || status.Code(err) == codes.Unknown {
		var m *coordpb.SessionReply
		if m, err = stream.Recv(); err == nil && waiting.Stop() {
			return f.welcomed(streamCtx, newConn(s, l, stream, cancel), sent, m)
		}
	}
	cancel()
	return nil, nil, f.silent(l, waiting, patience, err)
}

// silent names the reason why no Welcome came.
func (f *finder) silent(l *link, waiting *time.Timer, patience time.Duration, err error) error {
	if waiting.Stop() {
		return plain(err)
	}
	f.grow()
	f.s.core.streams.silent(l.endpoint, time.Now().Add(-patience))
	return &silence{patience}
}

// silence is the error of a server that was reached and has not answered for so
// long.
type silence struct{ patience time.Duration }

func (e *silence) Error() string { return fmt.Sprintf("no answer within %s", e.patience) }

func (f *finder) grow() { f.patience = min(2*f.patience, maxPatience) }

// hello introduces the session and says when it was first sent in this form,
// which is where the deadline of the answer counts from.
func (s *Session) hello() (*coordpb.Hello, time.Duration) {
	o := s.core.opts
	h := &coordpb.Hello{LastZxid: s.core.seen.Load(), ClusterId: s.core.cluster(""), Name: s.open.name}
	for _, a := range o.auth {
		h.Auth = append(h.Auth, &coordpb.Auth{Scheme: a.scheme, Credential: a.secret})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	switch {
	case s.plain:
		h.Mode = coordpb.Hello_MODE_NONE
	case s.id == 0:
		h.Mode = coordpb.Hello_MODE_OPEN
		h.Nonce, h.Identity, h.TakeOver = s.nonce, s.open.identity, s.takeOver
		h.TimeoutMs = s.open.timeout.Milliseconds()
		if s.nonceSent == 0 {
			s.nonceSent, s.connection = max(now, 1), 1
		}
		now = s.nonceSent
	default:
		s.connection++
		h.Mode = coordpb.Hello_MODE_ATTACH
		h.SessionId, h.Secret, h.Connection = uint64(s.id), s.secret, s.connection
		h.TimeoutMs = s.timeout.Milliseconds()
	}
	return h, now
}

// welcomed judges the Welcome and puts the new connection to use.
func (f *finder) welcomed(ctx context.Context, cn *conn, sent time.Duration, m *coordpb.SessionReply) (*conn, *refusal, error) {
	w := m.Welcome
	if w == nil {
		cn.cancel()
		if e := m.GetGoodbye().GetError(); e != nil {
			return nil, &refusal{err: fromProto(opDial, "", "", e), proto: e}, nil
		}
		return nil, nil, fmt.Errorf("%w: the first message is no welcome", ErrProtocol)
	}
	if failed(w.Error) {
		cn.cancel()
		return nil, &refusal{err: fromProto(opDial, "", w.Server, w.Error), proto: w.Error, nextSeq: w.NextSeq, current: w.Current}, nil
	}
	if own := f.s.core.cluster(w.ClusterId); own != w.ClusterId {
		cn.cancel()
		return nil, nil, fmt.Errorf("%w: the server belongs to %s, the session to %s", ErrWrongCluster, w.ClusterId, own)
	}
	cn.server, cn.number = w.Server, w.Connection
	f.s.install(cn, w, sent)
	f.s.core.saw(m.Zxid)
	cn.start(ctx)
	return cn, nil, nil
}
