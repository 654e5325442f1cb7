package zkimport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coordd/coord/client"
)

// Difference is something that is not in the cluster as it is in the ensemble.
type Difference struct {
	Path string // in the cluster
	// What is "missing", "extra", "data", "ACL", "counter", "ephemeral", "quota",
	// "hidden" (this client may not see it in the cluster) or "unreadable" (in the
	// ensemble).
	What   string
	Detail string // for people; may be empty
}

// Verification is what a comparison found.
type Verification struct {
	Znodes      int // that were compared
	Differences []Difference
	// Changed is how many znodes came or went in the ensemble during the comparison:
	// if it is not 0 the differences may be of that.
	Changed int
}

// Verify compares the survey with what is below the path under: that each znode is
// there, with the same data and ACL and a sequence counter that is not behind, and
// that there are no others. Ephemerals on either side, times and versions do not
// matter. It changes nothing.
func (v *Survey) Verify(ctx context.Context, c *client.Client, under string) (*Verification, error) {
	found, err := v.compare(ctx, c, under)
	if err != nil {
		return nil, err
	}
	out := &Verification{Znodes: len(v.nodes), Changed: v.Gone + found.gone}
	for _, f := range v.faults {
		out.add(found.to(f.Path), "unreadable", f.Reason)
	}
	hidden := map[string]bool{}
	for _, path := range found.hidden {
		hidden[path] = true
		out.add(path, "hidden", "this client may not see all of it in the cluster")
	}
	for i := range found.states {
		if path := found.to(v.nodes[i].path); !hidden[path] && !below(hidden, path) {
			out.judge(path, &v.nodes[i], &found.states[i])
		}
	}
	for _, path := range found.extra {
		out.add(path, "extra", "the ensemble has no such znode")
	}
	if err := v.verifyQuotas(ctx, c, found.mapping, out); err != nil {
		return nil, err
	}
	slices.SortStableFunc(out.Differences, func(a, b Difference) int { return cmp.Compare(a.Path, b.Path) })
	return out, nil
}

func (out *Verification) add(path, what, detail string) {
	out.Differences = append(out.Differences, Difference{path, what, detail})
}

// judge compares one znode.
func (out *Verification) judge(path string, n *node, s *state) {
	switch {
	case !s.present:
		out.add(path, "missing", "")
		return
	case s.ephemeral:
		out.add(path, "ephemeral", "in the cluster it belongs to a session")
		return
	}
	if s.data {
		out.add(path, "data", "")
	}
	if s.acl {
		out.add(path, "ACL", "")
	}
	if s.creates < n.creates {
		out.add(path, "counter", fmt.Sprintf("the next number is %d, in the ensemble %d", s.creates, n.creates))
	}
}

func (v *Survey) verifyQuotas(ctx context.Context, c *client.Client, m mapping, out *Verification) error {
	for i := range v.quotas {
		s, err := v.lookAtQuota(ctx, c, m, &v.quotas[i])
		switch {
		case err != nil:
			return err
		case s.path != "" && !s.present:
			out.add(s.path, "quota", "it is missing")
		case s.differs:
			out.add(s.path, "quota", "the limits differ")
		}
	}
	return v.extraQuotas(ctx, c, m, out)
}

// extraQuotas looks for limits in the cluster that the ensemble has not.
func (v *Survey) extraQuotas(ctx context.Context, c *client.Client, m mapping, out *Verification) error {
	known := map[string]bool{}
	for i := range v.quotas {
		known[m.to(v.quotas[i].top)] = true
	}
	root := strings.TrimSuffix(quotaPath+m.under, "/")
	for n, err := range c.Walk(ctx, root, client.WithoutData()) {
		if errors.Is(err, client.ErrNoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		if top, isLimit := quotaTop(n.Path); isLimit && !known[top] {
			out.add(n.Path, "quota", "the ensemble has no such limits")
		}
	}
	return nil
}
