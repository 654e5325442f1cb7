package zkimport

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/znode"
)

// Options say where a subtree goes, and what to do with what is there.
type Options struct {
	// Under is the path in the cluster that the top of the subtree gets.
	Under string
	// Overwrite sets data and ACL of znodes that are there and differ.
	Overwrite bool
}

// Conflict is a znode that is in the cluster already, and differs.
type Conflict struct {
	Path string   // in the cluster
	What []string // "data", "ACL", "limits" of a quota, or "ephemeral"
}

// Plan is what an import will do. It is carried out only without faults and
// conflicts.
type Plan struct {
	Faults    []Fault
	Conflicts []Conflict
	// Notes are for people: what will not be quite as it was.
	Notes []string

	Create    int      // znodes to create; a root that nobody has set counts as one
	Bytes     int64    // of data in them
	Present   int      // znodes that are there, and the same
	Overwrite int      // znodes to set
	Counters  int      // sequence counters to raise, beyond what the creates do
	Quotas    int      // limits to create or set
	Parents   []string // znodes to create above the subtree

	survey *Survey
	mapping
	limits limits
	todo   []action
	raise  []int32        // positions of the znodes whose counter is to be raised
	left   map[int32]bool // positions of znodes that were gone when their turn came
	short  map[int32]bool // positions of their parents
	quotas []quotaAction
}

// action is what will be done with one znode.
type action struct {
	at                int32
	create, data, acl bool // data and ACL: set, at the versions
	first             bool // what is set was never set before
	version, aversion client.Version
}

// Ready says whether the plan can be carried out.
func (p *Plan) Ready() bool { return len(p.Faults) == 0 && len(p.Conflicts) == 0 }

// Empty says whether there is nothing to do.
func (p *Plan) Empty() bool {
	return p.Create+p.Overwrite+p.Counters+p.Quotas+len(p.Parents) == 0
}

// Plan compares the survey with the cluster, which it does not change. The client
// must have a session.
func (v *Survey) Plan(ctx context.Context, c *client.Client, o Options) (*Plan, error) {
	p := &Plan{survey: v, mapping: mapping{v.Top, o.Under}, limits: limitsOf(c), Faults: slices.Clone(v.faults)}
	p.checkLimits()
	cmp, err := v.compare(ctx, c, o.Under)
	if err != nil {
		return nil, err
	}
	for _, path := range cmp.hidden {
		p.Faults = append(p.Faults, Fault{Path: path, Kind: FaultRights, Reason: "is in the cluster, where you may not see all of it"})
	}
	if err := p.findParents(ctx, c); err != nil {
		return nil, err
	}
	p.decide(cmp, o.Overwrite)
	if err := p.planQuotas(ctx, c, o.Overwrite); err != nil {
		return nil, err
	}
	if err := p.checkRights(ctx, c); err != nil {
		return nil, err
	}
	return p, nil
}

// checkLimits names what no znode of the cluster can be.
func (p *Plan) checkLimits() {
	v := p.survey
	unproved := 0
	for i := range v.nodes {
		n := &v.nodes[i]
		if f := p.limits.faultOf(n, v.aclOf(n), p.mapping); f != nil {
			p.Faults = append(p.Faults, *f)
		}
		if unmatched(v.aclOf(n)) != "" {
			unproved++
		}
	}
	if v.Gone > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d znodes were deleted from the ensemble while it was read", v.Gone))
	}
	if unproved > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d znodes have ACL entries of scheme sasl, which no client of this cluster can prove", unproved))
	}
}

// findParents looks for what is missing above the subtree.
func (p *Plan) findParents(ctx context.Context, c *client.Client) error {
	for path := p.under; path != "/"; {
		path = parentOf(path)
		_, ok, err := c.Exists(ctx, path)
		if err != nil {
			return err
		}
		if ok {
			break
		}
		p.Parents = append(p.Parents, path)
	}
	slices.Reverse(p.Parents)
	return nil
}

// decide says what happens with each znode.
func (p *Plan) decide(cmp *comparison, overwrite bool) {
	created := make([]int64, len(cmp.states)) // children, by parent
	for i := range cmp.states {
		s, n := &cmp.states[i], &p.survey.nodes[i]
		switch {
		case !s.present:
			p.todo = append(p.todo, action{at: int32(i), create: true})
			p.Create++
			p.Bytes += int64(n.bytes)
			if n.parent >= 0 {
				created[n.parent]++
			}
		case s.ephemeral:
			p.Conflicts = append(p.Conflicts, Conflict{p.to(n.path), []string{"ephemeral"}})
		case !s.data && !s.acl:
			p.Present++
		case overwrite || s.untouched(p.to(n.path)):
			p.set(int32(i), s)
		default:
			p.Conflicts = append(p.Conflicts, Conflict{p.to(n.path), s.differences()})
		}
	}
	for i := range cmp.states {
		if p.survey.nodes[i].creates > cmp.states[i].creates+created[i] {
			p.raise = append(p.raise, int32(i))
		}
	}
	p.Counters = len(p.raise)
}

// set puts a znode that is there and differs into the plan.
func (p *Plan) set(at int32, s *state) {
	n := &p.survey.nodes[at]
	first := s.untouched(p.to(n.path))
	p.todo = append(p.todo, action{at: at, data: s.data, acl: s.acl, first: first, version: s.version, aversion: s.aversion})
	if !first {
		p.Overwrite++
		return
	}
	p.Create++
	p.Bytes += int64(n.bytes)
}

// untouched says that the znode is the cluster's root as it was made: that is there
// before anything is.
func (s *state) untouched(path string) bool { return path == "/" && s.version == 0 && s.aversion == 0 }

func (s *state) differences() []string {
	var what []string
	if s.data {
		what = append(what, "data")
	}
	if s.acl {
		what = append(what, "ACL")
	}
	return what
}

// needs says for each list of permissions what this client must be allowed below
// znodes that have it, in order to write what is below them.
func (p *Plan) needs() map[int32]uint32 {
	v := p.survey
	need := map[int32]uint32{}
	for _, a := range p.todo {
		if parent := v.nodes[a.at].parent; a.create && parent >= 0 {
			need[v.nodes[parent].acl] |= znode.PermCreate
		}
	}
	for _, at := range p.raise {
		need[v.nodes[at].acl] |= znode.PermAdmin
	}
	for acl, perms := range need {
		if open(v.acls.lists[acl], perms) {
			delete(need, acl)
		}
	}
	return need
}

// checkRights finds out whether the ACLs that are copied would keep this client
// from going on below them, and names the znodes.
func (p *Plan) checkRights(ctx context.Context, c *client.Client) error {
	if !p.Ready() {
		return nil // it will not be carried out
	}
	need := p.needs()
	for acl, perms := range need {
		ok, err := p.probe(ctx, c, p.survey.acls.lists[acl], perms)
		if err != nil {
			return err
		}
		if ok {
			delete(need, acl)
		}
	}
	if len(need) == 0 {
		return nil
	}
	for i := range p.survey.nodes {
		n := &p.survey.nodes[i]
		if perms, ok := need[n.acl]; ok {
			p.Faults = append(p.Faults, Fault{
				Path: p.to(n.path), Kind: FaultRights,
				Reason: "its ACL keeps you from " + doing(perms) + ": be a superuser of the cluster, or one of those whom it names",
			})
		}
	}
	return nil
}

func doing(perms uint32) string {
	switch perms {
	case znode.PermCreate:
		return "creating what is below it"
	case znode.PermAdmin:
		return "raising its sequence counter"
	default:
		return "creating what is below it and raising its sequence counter"
	}
}

// probeName is that of a znode which never comes to be.
const probeName = "coordctl-import-probe"

// probe asks the cluster whether this client may use the permissions on a znode with
// that ACL: in a transaction that makes one, uses it, and then always fails, so
// that nothing is left of it.
func (p *Plan) probe(ctx context.Context, c *client.Client, acl []znode.ACL, perms uint32) (bool, error) {
	at := p.under
	if p.Create > 0 && len(p.Parents) > 0 {
		at = parentOf(p.Parents[0])
	} else if _, ok, err := c.Exists(ctx, at); err != nil {
		return false, err
	} else if !ok {
		at = parentOf(at)
	}
	path := join(at, probeName)
	ops := []client.Op{client.OpCreate(path, nil, client.WithACL(acl...))}
	if perms&znode.PermCreate != 0 {
		ops = append(ops, client.OpCreate(join(path, "child"), nil))
	}
	if perms&znode.PermAdmin != 0 {
		ops = append(ops, client.OpSequence(path, 0))
	}
	ops = append(ops, client.OpDelete(join(path, "none"), client.AnyVersion))
	_, err := c.Txn(ctx, ops...)
	var ce *client.Error
	switch {
	case errors.As(err, &ce) && ce.Index == len(ops)-1, errors.Is(err, client.ErrQuotaExceeded):
		return true, nil
	case errors.Is(err, client.ErrNoAuth) && ce.Index == 0:
		return true, nil // there it cannot be found out; the write itself will tell
	case errors.Is(err, client.ErrNoAuth):
		return false, nil
	}
	return false, err
}
