package cluster

import (
	"context"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

// unsuspect takes suspicions back through the log, and returns when that is
// applied here. The next leader counts from a mark, so no sign of life may be
// answered before the mark is gone. It returns those for which that failed,
// because they were marked again meanwhile: they have to be reported once more.
func (l *liveness) unsuspect(ctx context.Context, ids []session.ID) (still []session.ID, err error) {
	before := l.marks(ids)
	seen := l.lookUp(ids)
	results := make(chan error, len(seen)) // has room for every answer
	for _, s := range seen {
		undo := &fsm.Command{Kind: fsm.CmdUnsuspect, Expire: s.named(l.reign.term)}
		l.reign.batch.propose(undo, func(err error) { results <- err })
	}
	for range seen {
		select {
		case err := <-results:
			if err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return l.believe(ids, before), nil
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

// believe notes which marks are gone from the table for good, and returns the
// sessions of which a new one was proposed since: it may stand behind the removal
// in the log.
func (l *liveness) believe(ids []session.ID, before map[session.ID]int) (still []session.ID) {
	seen := l.lookUp(ids)
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, s := range seen {
		if s.suspect || l.marked[id] != before[id] {
			still = append(still, id)
			continue
		}
		l.expiry.Trust(id)
	}
	return still
}
