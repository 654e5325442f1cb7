package cluster

import (
	"context"
	"errors"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

// errStillSuspect is returned when a suspicion could not be taken back. The
// report is made again.
var errStillSuspect = errors.New("a session is still under suspicion")

// unsuspect takes suspicions back through the log, and returns when that is
// applied here. The next leader counts from a mark, so no sign of life may be
// answered before the mark is gone.
func (l *liveness) unsuspect(ctx context.Context, ids []session.ID) error {
	before := l.marks(ids)
	seen := l.lookUp(ids)
	results := make(chan error, len(seen)) // has room for every answer
	for _, s := range seen {
		l.reign.batch.propose(&fsm.Command{Kind: fsm.CmdUnsuspect, Expire: &fsm.Expire{
			Session: s.id, Generation: s.generation, Touched: s.touched, Term: l.reign.term,
		}}, func(err error) { results <- err })
	}
	for range seen {
		select {
		case err := <-results:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return l.believe(ids, before)
}

func (l *liveness) marks(ids []session.ID) map[session.ID]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := make(map[session.ID]int, len(ids))
	for _, id := range ids {
		m[id] = l.marked[id]
	}
	return m
}

// believe notes that the suspicions are gone from the table, if no new one was
// proposed meanwhile.
func (l *liveness) believe(ids []session.ID, before map[session.ID]int) error {
	seen := l.lookUp(ids)
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, s := range seen {
		if s.suspect || l.marked[id] != before[id] {
			return errStillSuspect
		}
		l.expiry.SetSuspect(id, false)
	}
	return nil
}
