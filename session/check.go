package session

import "fmt"

// Check looks at every invariant of the table and returns the first that does
// not hold, as [ErrInvariant]. It takes time in proportion to the table.
func (t *Table) Check() error {
	checks := []func() error{t.checkSessions, t.checkIndexes, t.checkEnded, t.checkServers, t.checkRequests, t.checkDigest}
	for _, check := range checks {
		if err := check(); err != nil {
			return fmt.Errorf("%w: %w", ErrInvariant, err)
		}
	}
	return nil
}

// check looks at the pages of a shelf and at who may write them.
func (s *shelf[T]) check(edition uint64) error {
	var last *T
	n := 0
	for _, p := range s.pages {
		if len(p.items) == 0 || len(p.items) > pageSize || p.edition > edition {
			return fmt.Errorf("a page of %d items, edition %d of %d", len(p.items), p.edition, edition)
		}
		for _, x := range p.items {
			if last != nil && s.compare(last, x) >= 0 {
				return fmt.Errorf("out of order at item %d", n)
			}
			last = x
			n++
		}
	}
	if n != s.n {
		return fmt.Errorf("%d items, counted as %d", n, s.n)
	}
	return nil
}

func (t *Table) checkSessions() error {
	if err := t.sessions.check(t.edition); err != nil {
		return fmt.Errorf("sessions: %w", err)
	}
	for s := range t.All() {
		switch {
		case t.open[s.ID] != s:
			return fmt.Errorf("session %s is not found by its id", s.ID)
		case t.endedBy[s.ID] != nil:
			return fmt.Errorf("session %s is open and ended", s.ID)
		case s.ID == 0 || int64(s.ID) < 0 || s.Generation == 0 || s.Timeout <= 0 || s.Protocol > ZooKeeper:
			return fmt.Errorf("session %s: generation %d, timeout %s, protocol %d", s.ID, s.Generation, s.Timeout, s.Protocol)
		case s.Suspected < 0 || s.Suspected > s.Timeout:
			return fmt.Errorf("session %s: silent for %s by the log, timeout %s", s.ID, s.Suspected, s.Timeout)
		case s.Identity != "" && t.identities[s.Identity] != s.ID:
			return fmt.Errorf("session %s is not found by its identity", s.ID)
		case s.OpenNonce != (Nonce{}) && t.nonces[s.OpenNonce] != s.ID:
			return fmt.Errorf("session %s is not found by its nonce", s.ID)
		}
		if err := s.Line.check(); err != nil {
			return fmt.Errorf("session %s: %w", s.ID, err)
		}
	}
	return nil
}

// checkIndexes counts: every session is found, so the numbers say whether
// something else is too.
func (t *Table) checkIndexes() error {
	identities, nonces := 0, 0
	for s := range t.All() {
		if s.Identity != "" {
			identities++
		}
		if s.OpenNonce != (Nonce{}) {
			nonces++
		}
	}
	if len(t.open) != t.sessions.n || len(t.identities) != identities || len(t.nonces) != nonces {
		return fmt.Errorf("%d sessions, %d identities, %d nonces in the indexes; %d, %d, %d in the table",
			len(t.open), len(t.identities), len(t.nonces), t.sessions.n, identities, nonces)
	}
	return nil
}

func (t *Table) checkEnded() error {
	if err := t.ended.check(t.edition); err != nil {
		return fmt.Errorf("ended sessions: %w", err)
	}
	for e := range t.AllEnded() {
		if t.endedBy[e.ID] != e || e.Next == 0 || e.Reason < Closed || e.Reason > Restored {
			return fmt.Errorf("ended session %s: next %d, reason %d", e.ID, e.Next, e.Reason)
		}
	}
	if len(t.endedBy) != t.ended.n || t.ended.n > MaxEnded {
		return fmt.Errorf("%d ended sessions, %d in the index", t.ended.n, len(t.endedBy))
	}
	return nil
}

func (t *Table) checkServers() error {
	if err := t.servers.check(t.edition); err != nil {
		return fmt.Errorf("servers: %w", err)
	}
	for l := range t.Servers() {
		if t.serverBy[l.Server] != l || len(l.past) > maxPastBoots {
			return fmt.Errorf("server %s: %d boots before", l.Server, len(l.past))
		}
		if err := l.Line.check(); err != nil {
			return fmt.Errorf("server %s: %w", l.Server, err)
		}
	}
	if len(t.serverBy) != t.servers.n {
		return fmt.Errorf("%d servers, %d in the index", t.servers.n, len(t.serverBy))
	}
	return nil
}

func (t *Table) checkRequests() error {
	if err := t.requests.check(t.edition); err != nil {
		return fmt.Errorf("request ids: %w", err)
	}
	for r := range t.Requests() {
		if t.requestBy[r.ID] != r {
			return fmt.Errorf("request id %q is not found", r.ID)
		}
	}
	if len(t.requestBy) != t.requests.n || t.requests.n > MaxRequests {
		return fmt.Errorf("%d request ids, %d in the index", t.requests.n, len(t.requestBy))
	}
	return nil
}

// checkDigest compares the running digest with one made from nothing.
func (t *Table) checkDigest() error {
	have := t.Digest()
	var want uint64
	for s := range t.All() {
		want += t.sum.session(s)
	}
	for e := range t.AllEnded() {
		want += t.sum.ended(e)
	}
	for l := range t.Servers() {
		want += t.sum.server(l)
	}
	for r := range t.Requests() {
		want += t.sum.request(r)
	}
	if have != want {
		return fmt.Errorf("the running digest is %#x, that of the content %#x", have, want)
	}
	return nil
}

func (l *Line) check() error {
	kept := l.kept[l.head:]
	if l.acked > l.done || uint64(len(kept)) > l.done-l.acked {
		return fmt.Errorf("number line: done %d, acknowledged %d, kept %d", l.done, l.acked, len(kept))
	}
	var digest uint64
	size := 0
	for i, e := range kept {
		if want := entryDigest(l.done-uint64(len(kept)-1-i), e.value); e.digest != want {
			return fmt.Errorf("number line: wrong digest at %d", l.done-uint64(len(kept)-1-i))
		}
		digest += e.digest
		if e.value != nil {
			size += e.value.Size()
		}
	}
	if digest != l.digest || size != l.bytes {
		return fmt.Errorf("number line: %d bytes kept, counted as %d", size, l.bytes)
	}
	return nil
}
