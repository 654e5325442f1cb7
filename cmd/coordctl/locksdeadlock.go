package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

// deadlock is a circle of waiting as scripts see it. The youngest wait is the
// last.
type deadlock []waitItem

// waitItem is one session that waits for the next of its circle.
type waitItem struct {
	Lock   string    `json:"lock"`
	Waiter waitParty `json:"waiter"`
	Holder waitParty `json:"holder"`
}

type waitParty struct {
	Node    string `json:"node"`
	Owner   string `json:"owner,omitempty"`
	Session string `json:"session"`
}

func newDeadlock(c lock.Cycle) deadlock {
	who := func(p *lock.Party) waitParty { return waitParty{p.Node, p.Owner, p.Session.String()} }
	var out deadlock
	for i := range c {
		out = append(out, waitItem{c[i].Lock, who(&c[i].Waiter), who(&c[i].Holder)})
	}
	return out
}

// circles are the deadlocks that were found so far, each once.
type circles struct {
	seen     map[string]bool
	warnings []string
}

// at looks for those that a lock is part of. Without the permission to see all
// that is needed the lock can still be shown.
func (s *circles) at(ctx context.Context, c *client.Client, item *lockItem) ([]deadlock, error) {
	if len(item.Waiters) == 0 || len(item.Holders) == 0 {
		return nil, nil
	}
	cycles, err := lock.Deadlocks(ctx, c, item.Path)
	if errors.Is(err, client.ErrNoAuth) || errors.Is(err, client.ErrNoNode) {
		return nil, nil
	}
	var out []deadlock
	for _, cycle := range cycles {
		out = append(out, newDeadlock(cycle))
		s.add(cycle)
	}
	return out, err
}

func (s *circles) add(c lock.Cycle) {
	var nodes []string
	for i := range c {
		nodes = append(nodes, c[i].Waiter.Node)
	}
	slices.Sort(nodes)
	key := strings.Join(nodes, " ")
	if s.seen[key] {
		return
	}
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	s.seen[key] = true
	s.warnings = append(s.warnings, "deadlock: "+oneLine(c.String()))
}
