package member

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/renewal"
)

// leaveGrace is how long Leave waits for the cluster although its context is
// done. The znode is removed in any case, at the latest with the session.
const leaveGrace = 5 * time.Second

// Membership is one member of a group, for as long as it wants to be. It is safe
// for concurrent use. One goroutine keeps it; it ends with the membership.
type Membership struct {
	g      *Group
	id     string
	opts   options
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}      // closed when all is cleaned up
	kick   chan struct{}      // cap 1: there is data to publish
	past   []client.SessionID // own former sessions; the goroutine's

	// mu guards the fields below.
	mu      sync.Mutex
	changed chan struct{} // closed and made anew with each change of them
	session *client.Session
	stat    client.Stat // of the znode; Czxid is 0 while there is none
	last    uint64      // newest version
	want    published   // newest data, published or not
	have    published   // what the znode has, or would have
	refused published   // version of the newest data that could not be published
	refusal error       // why
	leftErr error       // what Leave returns
}

// published is data with a number that tells newer from older.
type published struct {
	data    []byte
	version uint64
}

// Join makes the caller a member with this id and data, until [Membership.Leave]
// or the end of the client. It returns when the member is in the list. ctx bounds
// the call only; if it ends first nothing is left behind.
//
// An id that another session holds is waited for, see [Patience], or taken over,
// see [TakeOver]; if it does not become free the error is a *TakenError. An id
// that the same session holds is not waited for.
func (g *Group) Join(ctx context.Context, id string, data []byte, opts ...Option) (*Membership, error) {
	m := &Membership{g: g, id: id, done: make(chan struct{}), kick: make(chan struct{}, 1), changed: make(chan struct{})}
	for _, opt := range opts {
		opt(&m.opts)
	}
	if err := g.checkID(id); err != nil {
		return nil, err
	}
	s := renewal.NewSessions(g.c)
	if s.Current().Timeout() <= 0 {
		return nil, fmt.Errorf("join %s: %w: the client has no session", g.path, client.ErrBadArguments)
	}
	m.last, m.want = 1, published{slices.Clone(data), 1}
	session, err := s.Live(ctx)
	if err != nil {
		return nil, err
	}
	e := entry{g: g, id: id, data: m.want.data, opts: m.opts, c: session.Client()}
	stat, err := e.join(ctx)
	if err != nil {
		_ = s.Close(ctx) // the join's error says more
		return nil, err
	}
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	m.joined(session, stat, m.want)
	go m.keep(s)
	return m, nil
}

// ID is the member's id.
func (m *Membership) ID() string { return m.id }

// Node is the path of the member's znode.
func (m *Membership) Node() string { return m.g.node(m.id) }

// Context is done when the membership is over for good. context.Cause says why:
// ErrLeft, a *TakenError, client.ErrClosed, or what the cluster does not permit.
func (m *Membership) Context() context.Context { return m.ctx }

// Session is the session that the membership depends on at the moment, 0 while it
// is out of the group and on its way back.
func (m *Membership) Session() client.SessionID {
	id, _ := m.current()
	return id
}

func (m *Membership) current() (client.SessionID, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stat.Czxid == 0 || m.ctx.Err() != nil || m.session.Context().Err() != nil {
		return 0, m.changed
	}
	return m.session.ID(), m.changed
}

// Sessions yields the session that the membership depends on: the present one
// first, then each other one, and 0 for the times without. A loop that is slow
// misses those that came and went meanwhile, never the newest. It ends when ctx
// is done or the membership is over.
func (m *Membership) Sessions(ctx context.Context) iter.Seq[client.SessionID] {
	return func(yield func(client.SessionID) bool) {
		for first, last := true, client.SessionID(0); ; {
			id, changed := m.current()
			if id != last || first {
				first, last = false, id
				if !yield(id) {
					return
				}
			}
			select {
			case <-changed:
			case <-m.ctx.Done():
				return
			case <-ctx.Done():
				return
			}
		}
	}
}

// SetData publishes other data, and returns when the cluster has it. While the
// member is out of the group it waits: the member rejoins with the newest data.
// If ctx ends first its error is returned, and the data is published all the same
// as soon as the cluster can. Data that the cluster does not take is an error,
// and the former data stays.
func (m *Membership) SetData(ctx context.Context, data []byte) error {
	m.mu.Lock()
	m.last++
	mine := m.last
	m.want = published{slices.Clone(data), mine}
	m.mu.Unlock()
	select {
	case m.kick <- struct{}{}:
	default:
	}
	for {
		m.mu.Lock()
		have, refused, refusal, changed := m.have.version, m.refused.version, m.refusal, m.changed
		m.mu.Unlock()
		switch {
		case m.ctx.Err() != nil:
			return context.Cause(m.ctx)
		case refused >= mine && have < mine:
			return refusal
		case have >= mine:
			return nil
		}
		select {
		case <-changed:
		case <-m.ctx.Done():
		case <-ctx.Done():
			return fmt.Errorf("set data of %s: %w: it is published as soon as the cluster answers", m.Node(), ctx.Err())
		}
	}
}

// Leave ends the membership and removes its znode. It is idempotent and works
// with a ctx that is done: it waits a few seconds then. An error says that the
// cluster could not be told in time; the znode goes as soon as the session can
// remove it, at the latest with the session.
func (m *Membership) Leave(ctx context.Context) error {
	m.cancel(ErrLeft)
	select {
	case <-m.done:
	case <-ctx.Done():
		t := time.NewTimer(leaveGrace)
		defer t.Stop()
		select {
		case <-m.done:
		case <-t.C:
			return fmt.Errorf("leave %s: %w: %w", m.Node(), client.ErrUnknownOutcome, ctx.Err())
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leftErr
}
