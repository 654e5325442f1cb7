package session

import (
	"cmp"
	"fmt"
	"iter"
	"strings"

	"github.com/coordd/coord/zxid"
)

// MaxEnded is how many ended sessions are remembered; the oldest is forgotten
// first.
const MaxEnded = 10_000

// Table is the replicated part: open and ended sessions, the number lines of
// the servers, and request ids. It is not safe for concurrent use; the state
// machine owns it.
//
// Invariants, see [Table.Check]:
//
//	open[id] is the session with that ID in sessions, and nothing else is in it
//	identities[n] and nonces[n] are exactly the open sessions that have one
//	the digest is the sum of the digests of everything that is not dirty
type Table struct {
	// edition rises with each Snapshot. What carries an older one may be part
	// of an image and is copied before it is written.
	edition uint64

	sessions   shelf[Session]
	open       map[ID]*Session
	identities map[string]ID
	nonces     map[Nonce]ID

	ended   shelf[Ended]
	endedBy map[ID]*Ended

	servers  shelf[ServerLine]
	serverBy map[string]*ServerLine

	requests  shelf[Request]
	requestBy map[string]*Request

	sum digestSum
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{
		edition:    1,
		sessions:   shelf[Session]{compare: func(a, b *Session) int { return cmp.Compare(a.ID, b.ID) }},
		open:       make(map[ID]*Session),
		identities: make(map[string]ID),
		nonces:     make(map[Nonce]ID),
		ended:      shelf[Ended]{compare: compareEnded},
		endedBy:    make(map[ID]*Ended),
		servers:    shelf[ServerLine]{compare: func(a, b *ServerLine) int { return strings.Compare(a.Server, b.Server) }},
		serverBy:   make(map[string]*ServerLine),
		requests:   shelf[Request]{compare: compareRequests},
		requestBy:  make(map[string]*Request),
	}
}

// compareEnded orders by the end, so that the first is the oldest. Several may
// end in one transaction.
func compareEnded(a, b *Ended) int {
	return cmp.Or(cmp.Compare(a.Zxid, b.Zxid), cmp.Compare(a.ID, b.ID))
}

// Len is the number of open sessions.
func (t *Table) Len() int { return t.sessions.n }

// Get returns the open session, or nil. It must not be changed, and not be kept
// past the lock under which it was read.
func (t *Table) Get(id ID) *Session { return t.open[id] }

// Edit returns the open session for writing, or nil: the one way to change it.
// The pointer is good until the next call of Edit for the same session, Digest
// or Snapshot; who keeps it longer writes into an image.
func (t *Table) Edit(id ID) *Session {
	s := t.open[id]
	if s == nil {
		return nil
	}
	if s.edition != t.edition {
		s = s.clone()
		s.edition = t.edition
		t.sessions.replace(s, t.edition)
		t.open[id] = s
	}
	if !s.dirty {
		t.sum.total -= s.digest
		s.dirty = true
		t.sum.sessions = append(t.sum.sessions, s)
	}
	return s
}

// Open adds a session; the table owns it from now on. A Generation of 0 becomes
// 1, the first connection. An identity that is held by an open session is
// refused with an [*IdentityError]; an id that is 0, open or ended already, or
// a nonce of an open session, is a fault of the caller and [ErrInvariant].
func (t *Table) Open(s *Session) error {
	if err := t.mayOpen(s); err != nil {
		return err
	}
	if s.Generation == 0 {
		s.Generation = 1
	}
	s.edition = t.edition
	s.dirty = true
	t.sum.sessions = append(t.sum.sessions, s)
	t.sessions.insert(s, t.edition)
	t.index(s)
	return nil
}

func (t *Table) mayOpen(s *Session) error {
	switch {
	case s.ID == 0:
		return fmt.Errorf("open session: %w: no id", ErrInvariant)
	case t.open[s.ID] != nil || t.endedBy[s.ID] != nil:
		return fmt.Errorf("open session %s: %w: id used before", s.ID, ErrInvariant)
	}
	if id, held := t.identities[s.Identity]; held {
		return &IdentityError{Identity: s.Identity, Current: id}
	}
	if id, held := t.nonces[s.OpenNonce]; held {
		return fmt.Errorf("open session %s: %w: nonce of session %s", s.ID, ErrInvariant, id)
	}
	return nil
}

func (t *Table) index(s *Session) {
	t.open[s.ID] = s
	if s.Identity != "" {
		t.identities[s.Identity] = s.ID
	}
	if s.OpenNonce != (Nonce{}) {
		t.nonces[s.OpenNonce] = s.ID
	}
}

// End takes a session out and remembers that it ended, in transaction z at
// cluster time now (ms). It returns nil if the session is not open. The
// ephemerals are the tree's matter.
func (t *Table) End(id ID, reason EndReason, z zxid.ID, now int64) *Ended {
	s := t.open[id]
	if s == nil {
		return nil
	}
	if s.dirty {
		s.dirty = false // Digest skips it
	} else {
		t.sum.total -= s.digest
	}
	t.sessions.remove(s, t.edition)
	delete(t.open, id)
	if s.Identity != "" {
		delete(t.identities, s.Identity)
	}
	if s.OpenNonce != (Nonce{}) {
		delete(t.nonces, s.OpenNonce)
	}
	e := &Ended{
		ID: id, Next: s.Line.Next(), Reason: reason, Zxid: z, Time: now,
		Name: s.Name, Timeout: s.Timeout,
	}
	t.rememberEnded(e)
	return e
}

func (t *Table) rememberEnded(e *Ended) {
	t.ended.insert(e, t.edition)
	t.endedBy[e.ID] = e
	t.sum.total += t.sum.ended(e)
	for t.ended.n > MaxEnded {
		old := t.ended.first()
		t.ended.remove(old, t.edition)
		delete(t.endedBy, old.ID)
		t.sum.total -= t.sum.ended(old)
	}
}

// ByIdentity returns the open session that holds the identity, or nil.
func (t *Table) ByIdentity(identity string) *Session { return t.open[t.identities[identity]] }

// ByOpenNonce returns the open session that was opened with the nonce, or nil:
// a repeated Open is answered with it.
func (t *Table) ByOpenNonce(n Nonce) *Session { return t.open[t.nonces[n]] }

// EndedSession returns what is remembered of an ended session.
func (t *Table) EndedSession(id ID) (*Ended, bool) {
	e, ok := t.endedBy[id]
	return e, ok
}

// Gone says why a session is not open: [ErrClosed], [ErrExpired], or
// [ErrUnknown] if nothing is remembered of it. It is nil for an open one.
func (t *Table) Gone(id ID) error {
	if t.open[id] != nil {
		return nil
	}
	if e, ok := t.endedBy[id]; ok {
		return e.Reason.Err()
	}
	return ErrUnknown
}

// All yields the open sessions in ascending order of their ids. The table must
// not be changed meanwhile.
func (t *Table) All() iter.Seq[*Session] { return t.sessions.from(nil) }

// Page returns up to limit open sessions with ids above after, ascending.
func (t *Table) Page(after ID, limit int) []*Session {
	var page []*Session
	if after+1 == 0 {
		return nil
	}
	for s := range t.sessions.from(&Session{ID: after + 1}) {
		if len(page) >= limit {
			break
		}
		page = append(page, s)
	}
	return page
}

// AllEnded yields the ended sessions that are remembered, oldest first.
func (t *Table) AllEnded() iter.Seq[*Ended] { return t.ended.from(nil) }
