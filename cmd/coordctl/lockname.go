package main

import (
	"context"
	"path"
	"regexp"

	"github.com/coordd/coord/client"
)

// lockEntry matches the names of the znodes in a lock's line: those of this
// project, Curator and go-zookeeper, old ones of both, and kazoo's. The number
// behind them has ten digits or more.
var lockEntry = regexp.MustCompile(`^(?:_c_[0-9A-Za-z-]+-(?:lock-|slot-|__READ__|__WRIT__)|lock-|[0-9a-f]{32}__r?lock__)[0-9]{10,}$`)

// slotEntry matches the path of a taken slot of a semaphore.
var slotEntry = regexp.MustCompile(`^(/.+)/slots/(?:0|[1-9][0-9]*)$`)

// lockOf returns the path of the lock that a znode is a holder or waiter of.
func lockOf(n *client.Node) (string, bool) {
	if n.Stat.Kind != client.Ephemeral && n.Stat.Kind != client.TTL { // TTL: it lingers
		return "", false
	}
	if m := slotEntry.FindStringSubmatch(n.Path); m != nil {
		return m[1], true
	}
	return path.Dir(n.Path), lockEntry.MatchString(path.Base(n.Path))
}

// findLocks returns the paths of the locks at root and below, in the order of the
// walk. Nothing else is kept of the tree.
func findLocks(ctx context.Context, c *client.Client, root string, answered func()) ([]string, error) {
	var locks []string
	seen := map[string]bool{}
	for n, err := range visit(ctx, c, root, -1, answered) {
		if err != nil {
			return nil, err
		}
		if lock, ok := lockOf(&n); ok && !seen[lock] {
			seen[lock] = true
			locks = append(locks, lock)
		}
	}
	return locks, nil
}
