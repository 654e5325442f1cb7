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
var lockEntry = regexp.MustCompile(`^(?:_c_[0-9A-Za-z-]+-lock-|lock-|[0-9a-f]{32}__lock__)[0-9]{10,}$`)

// findLocks returns the paths of the locks at root and below: the parents of
// ephemeral znodes with such names, in the order of the walk. Nothing else is
// kept of the tree.
func findLocks(ctx context.Context, c *client.Client, root string, answered func()) ([]string, error) {
	var locks []string
	seen := map[string]bool{}
	for n, err := range visit(ctx, c, root, -1, answered) {
		if err != nil {
			return nil, err
		}
		dir := path.Dir(n.Path)
		if n.Stat.Kind == client.Ephemeral && !seen[dir] && lockEntry.MatchString(path.Base(n.Path)) {
			seen[dir] = true
			locks = append(locks, dir)
		}
	}
	return locks, nil
}
