package lock

import (
	"context"
	"errors"
	"slices"

	"github.com/coordd/coord/client"
)

// seenFree returns a *BusyError if somebody is in the queue that a contender in
// this role would have to wait for. The entry with the name own is the
// contender's; without one it would come last.
func (f *folder) seenFree(ctx context.Context, r role, own string) error {
	var opts []client.ReadOption
	if own != "" {
		opts = append(opts, client.Mode(client.ReadSession))
	}
	names, err := f.c.Children(ctx, f.path, opts...)
	if errors.Is(err, client.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	q := queueOf(names)
	before := len(q)
	if own != "" {
		before = slices.IndexFunc(q, func(e entry) bool { return e.name == own })
	}
	if before <= 0 || !slices.ContainsFunc(q[:before], r.waitsFor) {
		return nil
	}
	return f.busy(ctx, q, own)
}

// waitsFor says whether a contender in this role has to wait for an earlier one:
// readers share the lock with readers.
func (r role) waitsFor(e entry) bool { return r != roleRead || roleOf(e.name) != roleRead }

// busy describes the head of the queue.
func (f *folder) busy(ctx context.Context, q []entry, own string) error {
	e := &BusyError{Path: f.path, Queue: len(q) - holders(q)}
	if own != "" {
		e.Queue--
	}
	var err error
	e.Holder, err = f.lookAt(ctx, f.path+"/"+q[0].name, party)
	if err != nil {
		return err
	}
	e.Holder.Holds = true
	return e
}

// lookAt describes who is behind a node, or behind its name if it has gone.
func (f *folder) lookAt(ctx context.Context, node string, describe func(string, []byte, client.Stat) Party) (Party, error) {
	n, err := f.c.Get(ctx, node, client.Mode(client.ReadSession))
	switch {
	case err == nil:
		return describe(node, n.Data, n.Stat), nil
	case errors.Is(err, client.ErrNoNode):
		return Party{Node: node, Slot: -1, Pattern: patternOf(node)}, nil
	default:
		return Party{}, err
	}
}

// holders is how many at the head of a queue hold the lock together: the readers
// before the first that is none, else the first.
func holders(q []entry) int {
	n := slices.IndexFunc(q, func(e entry) bool { return roleOf(e.name) != roleRead })
	if n < 0 {
		return len(q)
	}
	return max(n, min(1, len(q)))
}
