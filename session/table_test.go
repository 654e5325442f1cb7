package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/zxid"
)

func newSession(id ID) *Session {
	s := &Session{ID: id, Timeout: 10 * time.Second}
	binary.BigEndian.PutUint64(s.OpenNonce[:], uint64(id))
	return s
}

func mustOpen(t testing.TB, tab *Table, s *Session) {
	t.Helper()
	if err := tab.Open(s); err != nil {
		t.Fatal(err)
	}
}

func mustCheck(t testing.TB, tab *Table) {
	t.Helper()
	if err := tab.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestRepeatedOpenFindsTheSameSession(t *testing.T) {
	tab := NewTable()
	s := newSession(7)
	mustOpen(t, tab, s)
	if got := tab.ByOpenNonce(s.OpenNonce); got == nil || got.ID != 7 {
		t.Fatalf("by nonce: %v, want session 7", got)
	}
	if got := tab.Get(7); got.Generation != 1 {
		t.Errorf("generation %d at open, want 1", got.Generation)
	}
	again := newSession(8)
	again.OpenNonce = s.OpenNonce
	if err := tab.Open(again); !errors.Is(err, ErrInvariant) {
		t.Errorf("a second session of one nonce: %v", err)
	}
	tab.End(7, Closed, 9, 0)
	if got := tab.ByOpenNonce(s.OpenNonce); got != nil {
		t.Errorf("by nonce after the end: session %s", got.ID)
	}
	if got := tab.ByOpenNonce(Nonce{}); got != nil {
		t.Errorf("the zero nonce found session %s", got.ID)
	}
	mustCheck(t, tab)
}

func TestIdentityHasOneSession(t *testing.T) {
	tab := NewTable()
	first := newSession(1)
	first.Identity = "batch-7"
	mustOpen(t, tab, first)
	second := newSession(2)
	second.Identity = "batch-7"
	err := tab.Open(second)
	var held *IdentityError
	if !errors.As(err, &held) || held.Current != 1 || !errors.Is(err, ErrIdentityInUse) {
		t.Fatalf("second session of the identity: %v", err)
	}
	if tab.Len() != 1 || tab.Get(2) != nil {
		t.Error("a refused open left something")
	}
	// Take-over: the old one ends in the same transaction.
	tab.End(1, TakenOver, 2, 0)
	mustOpen(t, tab, second)
	if got := tab.ByIdentity("batch-7"); got == nil || got.ID != 2 {
		t.Errorf("by identity: %v, want session 2", got)
	}
	if tab.ByIdentity("") != nil {
		t.Error("the empty identity found a session")
	}
	mustCheck(t, tab)
}

func TestSessionIDIsNeverUsedTwice(t *testing.T) {
	tab := NewTable()
	mustOpen(t, tab, newSession(1))
	for _, id := range []ID{0, 1} {
		s := newSession(id)
		s.OpenNonce = Nonce{9}
		if err := tab.Open(s); !errors.Is(err, ErrInvariant) {
			t.Errorf("open of id %d: %v", id, err)
		}
	}
	tab.End(1, Expired, 5, 0)
	if err := tab.Open(newSession(1)); !errors.Is(err, ErrInvariant) {
		t.Errorf("open of an ended session's id: %v", err)
	}
}

func TestEndedSessionTellsNotDoneFromUnknown(t *testing.T) {
	for reason, want := range map[EndReason]error{
		Closed: ErrClosed, Expired: ErrExpired, Killed: ErrExpired, TakenOver: ErrExpired, Restored: ErrExpired,
	} {
		tab := NewTable()
		mustOpen(t, tab, newSession(3))
		s := tab.Edit(3)
		s.Line.Record(1, answer("a"), true)
		s.Line.Record(2, answer("b"), true)
		if e := tab.End(3, reason, 77, 1234); e == nil || e.Next != 3 {
			t.Fatalf("%s: end gives %+v", reason, e)
		}
		e, ok := tab.EndedSession(3)
		if !ok || e.Zxid != 77 || e.Time != 1234 || e.Timeout != 10*time.Second {
			t.Fatalf("%s: remembered %+v", reason, e)
		}
		if err := e.Outcome(2); !errors.Is(err, ErrUnknownOutcome) || errors.Is(err, want) {
			t.Errorf("%s: a number that was used: %v", reason, err)
		}
		if err := e.Outcome(3); !errors.Is(err, want) || errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("%s: a number that was never used: %v", reason, err)
		}
		if err := tab.Gone(3); !errors.Is(err, want) {
			t.Errorf("%s: gone: %v", reason, err)
		}
		if tab.Get(3) != nil || tab.Edit(3) != nil || tab.End(3, Closed, 78, 0) != nil {
			t.Errorf("%s: the ended session is still open", reason)
		}
		mustCheck(t, tab)
	}
	if err := NewTable().Gone(3); !errors.Is(err, ErrUnknown) {
		t.Errorf("a session that never was: %v", err)
	}
}

func TestOldestEndedSessionsAreForgotten(t *testing.T) {
	tab := NewTable()
	const n = MaxEnded + 500
	for id := ID(1); id <= n; id++ {
		mustOpen(t, tab, newSession(id))
		tab.End(id, Expired, zxid.ID(id/10+1), int64(id)) // ten end in one transaction
	}
	for _, id := range []ID{1, 500} {
		if _, ok := tab.EndedSession(id); ok {
			t.Errorf("session %s is remembered beyond the last %d", id, MaxEnded)
		}
	}
	for _, id := range []ID{501, n} {
		if _, ok := tab.EndedSession(id); !ok {
			t.Errorf("session %s is forgotten, one of the last %d", id, MaxEnded)
		}
	}
	mustCheck(t, tab)
}

// Every page of a listing follows the one before, whatever comes and goes.
func TestPagesListEverySessionOnceInOrder(t *testing.T) {
	tab := NewTable()
	const n = 3000
	for i := range n {
		mustOpen(t, tab, newSession(ID((i*7919)%n+1))) // not in order
	}
	for id := ID(1); id <= n; id++ {
		if id%3 != 0 {
			tab.End(id, Closed, zxid.ID(n)+zxid.ID(id), 0)
		}
	}
	want := ID(3)
	for after := ID(0); ; {
		page := tab.Page(after, 100)
		for _, s := range page {
			if s.ID != want {
				t.Fatalf("session %d, want %d", s.ID, want)
			}
			want += 3
		}
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1].ID
	}
	if want != n+3 {
		t.Errorf("the pages ended before %d", want)
	}
	if got := tab.Page(1<<64-1, 10); got != nil {
		t.Errorf("a page after the largest number: %d sessions", len(got))
	}
	mustCheck(t, tab)
}

// Opening and closing for ever leaves nothing but the ended ring.
func TestNoGrowthWhenSessionsComeAndGo(t *testing.T) {
	tab := NewTable()
	for id := ID(1); id <= 20_000; id++ {
		s := newSession(id)
		s.Identity = fmt.Sprint("client-", id)
		mustOpen(t, tab, s)
		if id > 100 {
			tab.End(id-100, Closed, zxid.ID(id), 0)
		}
	}
	if pages := len(tab.sessions.pages); tab.Len() != 100 || pages > 4 || len(tab.open)+len(tab.identities)+len(tab.nonces) != 300 {
		t.Errorf("%d sessions in %d pages, %d, %d, %d in the indexes", tab.Len(), pages, len(tab.open), len(tab.identities), len(tab.nonces))
	}
	tab.Digest()
	if len(tab.sum.sessions) != 0 {
		t.Error("the list of edited sessions keeps what was hashed")
	}
	mustCheck(t, tab)
}

func TestShelfKeepsOrderUnderAnyInsertAndRemove(t *testing.T) {
	tab := NewTable()
	rng := seed.Rand(t)
	in := map[ID]bool{}
	z := zxid.ID(1 << 40)
	for range 30_000 {
		id := ID(rng.IntN(4000) + 1)
		switch {
		case in[id]:
			z++
			tab.End(id, Closed, z, 0)
			delete(in, id)
			delete(tab.endedBy, id) // so that the id may come again
			for tab.ended.n > 0 {
				e := tab.ended.first()
				tab.ended.remove(e, tab.edition)
				tab.sum.total -= tab.sum.ended(e)
			}
		default:
			mustOpen(t, tab, newSession(id))
			in[id] = true
		}
		if rng.IntN(1000) == 0 {
			tab.Snapshot()
			mustCheck(t, tab)
		}
	}
	if tab.Len() != len(in) {
		t.Errorf("%d sessions, want %d", tab.Len(), len(in))
	}
	mustCheck(t, tab)
}
