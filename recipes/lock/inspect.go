package lock

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/coordd/coord/client"
)

// Info is what is known about a lock at one moment.
type Info struct {
	Path    string
	Holders []Party // one, or none if nobody wants the lock
	Waiters []Party // in the order of the queue
	// Warnings say what is wrong with the lock, in words for people.
	Warnings []string
}

// Inspect shows the holder and the waiting line, also for locks taken by
// ZooKeeper clients. A lock that nobody wants, or that never was, is empty.
func (m *Mutex) Inspect(ctx context.Context) (Info, error) {
	info := Info{Path: m.path}
	nodes := map[string]client.Node{}
	var names []string
	for n, err := range m.c.Walk(ctx, m.path) {
		if errors.Is(err, client.ErrNoNode) {
			return info, nil
		}
		if err != nil {
			return info, err
		}
		dir, name := path.Split(n.Path)
		if dir == m.path+"/" {
			nodes[name] = n
			names = append(names, name)
		}
	}
	q := queueOf(names)
	for i, e := range q {
		p := party(m.path, e, nodes[e.name].Data, nodes[e.name].Stat)
		if i == 0 {
			info.Holders = append(info.Holders, p)
		} else {
			info.Waiters = append(info.Waiters, p)
		}
	}
	info.Warnings = warnings(q, nodes)
	return info, nil
}

// warnings names what can let two contenders in or block all of them.
func warnings(q []entry, nodes map[string]client.Node) []string {
	var out []string
	seen := map[Pattern]bool{}
	for _, e := range q {
		seen[e.pattern] = true
		if nodes[e.name].Stat.Kind != client.Ephemeral {
			out = append(out, fmt.Sprintf("%s is not ephemeral: it stays until somebody deletes it", e.name))
		}
	}
	if seen[PatternKazoo] && len(seen) > 1 {
		out = append(out, "kazoo clients share this lock with others: unless they were told "+
			"extra_lock_patterns=('-lock-',) they do not wait for them")
	}
	return out
}
