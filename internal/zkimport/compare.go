package zkimport

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
)

// state is what the cluster has of one znode of a survey.
type state struct {
	present   bool
	ephemeral bool // there is one, of a session
	data, acl bool // it is there and these differ
	creates   int64
	version   client.Version // of the data
	aversion  client.Version // of the ACL
}

// comparison is a survey held against the cluster.
type comparison struct {
	mapping
	states []state  // as the survey's nodes
	extra  []string // paths in the cluster of what the ensemble has not
	hidden []string // paths in the cluster of what this client may not see
	gone   int      // znodes that were deleted from the ensemble meanwhile
}

// compareAtOnce is how many znodes are compared at the same time.
const compareAtOnce = 128

// compare looks at everything in the cluster where the survey's znodes belong. Only
// what is on both sides is read from the ensemble again, for its data.
func (v *Survey) compare(ctx context.Context, c *client.Client, under string) (*comparison, error) {
	v.progress.begin("comparing", len(v.nodes))
	cmp := &comparison{mapping: mapping{v.Top, under}, states: make([]state, len(v.nodes))}
	known := make(map[string]int32, len(v.nodes))
	for i := range v.nodes {
		known[v.nodes[i].path] = int32(i)
	}
	g, ctx := errgroup.WithContext(ctx)
	work := make(chan pair)
	g.Go(func() error {
		defer close(work)
		return v.walkTarget(ctx, c, cmp, known, work)
	})
	seen := make([]pairing, compareAtOnce)
	for k := range compareAtOnce {
		g.Go(func() error {
			for p := range work {
				if err := v.comparePair(ctx, c, cmp, p, &seen[k]); err != nil {
					return err
				}
				v.progress.add(1, 0)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, s := range seen {
		cmp.hidden = append(cmp.hidden, s.hidden...)
		cmp.gone += s.gone
	}
	slices.Sort(cmp.hidden)
	return cmp, nil
}

// pair is a znode that is on both sides.
type pair struct {
	at int32
	n  client.Node
}

// pairing is what one goroutine found out.
type pairing struct {
	hidden []string
	gone   int
}

// walkTarget goes through the cluster's subtree and sends on what is to be compared.
func (v *Survey) walkTarget(ctx context.Context, c *client.Client, cmp *comparison, known map[string]int32, work chan<- pair) error {
	faulty := map[string]bool{}
	for _, f := range v.faults {
		faulty[f.Path] = true
	}
	for n, err := range c.Walk(ctx, cmp.under) {
		if errors.Is(err, client.ErrNoNode) {
			return nil // none of it is there yet
		}
		if err != nil {
			return err
		}
		if within(n.Path, systemPath) {
			continue
		}
		at, ok := known[cmp.from(n.Path)]
		switch {
		case !ok:
			if n.Stat.EphemeralOwner == 0 && !below(faulty, cmp.from(n.Path)) {
				cmp.extra = append(cmp.extra, n.Path)
			}
			continue
		case n.Denied:
			cmp.states[at].present = true
			cmp.hidden = append(cmp.hidden, n.Path)
			continue
		}
		select {
		case work <- pair{at, n}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// below says whether path or a znode above it is in the set.
func below(set map[string]bool, path string) bool {
	if len(set) == 0 {
		return false
	}
	for p := path; ; p = parentOf(p) {
		if set[p] {
			return true
		}
		if p == "/" {
			return false
		}
	}
}

// comparePair compares one znode: data, ACL and what it is.
func (v *Survey) comparePair(ctx context.Context, c *client.Client, cmp *comparison, p pair, found *pairing) error {
	s := &cmp.states[p.at]
	*s = state{
		present: true, ephemeral: p.n.Stat.EphemeralOwner != 0, creates: createsHere(&p.n.Stat),
		version: p.n.Stat.Version, aversion: p.n.Stat.Aversion,
	}
	n := &v.nodes[p.at]
	data, _, err := v.source.data(ctx, n.path)
	switch {
	case errors.Is(err, wire.NoNode):
		found.gone++
	case err != nil:
		return sourceError(n.path, err)
	default:
		s.data = !sameData(n.path, data, p.n)
	}
	acl, _, err := c.ACL(ctx, p.n.Path)
	switch {
	case errors.Is(err, client.ErrNoNode):
		s.present = false
		return nil
	case errors.Is(err, client.ErrNoAuth):
		found.hidden = append(found.hidden, p.n.Path)
		return nil
	case err != nil:
		return err
	case masked(acl):
		found.hidden = append(found.hidden, p.n.Path)
	}
	s.acl = !masked(acl) && !slices.Equal(stored(acl), v.acls.lists[n.acl])
	return nil
}

// sameData compares data, where null is not empty. Roots that nobody has set are
// the same: ZooKeeper's is empty and the cluster's null.
func sameData(path string, data []byte, n client.Node) bool {
	if path == "/" && n.Path == "/" && len(data) == 0 && len(n.Data) == 0 {
		return true
	}
	return (data == nil) == (n.Data == nil) && bytes.Equal(data, n.Data)
}

// aclOf are the permissions of one znode of the survey.
func (v *Survey) aclOf(n *node) []znode.ACL { return v.acls.lists[n.acl] }
