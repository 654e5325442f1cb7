package zkimport

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
)

// Result is what a Run has done. After an error it is what is known to be done.
type Result struct {
	Created     int
	Overwritten int
	Counters    int
	Quotas      int
	Bytes       int64
	// Changed are the paths in the ensemble of znodes that were changed or deleted
	// there between the survey and the copy: the copy has their new data, but is
	// not that of one moment. At most 1000 are kept.
	Changed []string
}

// ErrNotReady is returned for a plan with faults or conflicts.
var ErrNotReady = errors.New("the plan has faults or conflicts")

const (
	maxChanged = 1000
	// readAheadBytes bounds the data that is read and not yet written.
	readAheadBytes = 32 << 20
	// readAhead bounds the znodes whose data is read and not yet written.
	readAhead = 4096
	// nodeOverhead is counted for each znode beside its data.
	nodeOverhead = 256
)

// Run carries the plan out. The client must have a session, and should serve
// nothing else: its writes are done in order.
//
// What an error or the end of the context leaves is whole znodes with their
// parents, at most without their counters and quotas; a new plan goes on from
// there.
func (p *Plan) Run(ctx context.Context, c *client.Client) (Result, error) {
	var r Result
	if !p.Ready() {
		return r, ErrNotReady
	}
	p.survey.progress.begin("copying", len(p.todo)+len(p.raise))
	for _, path := range p.Parents {
		if err := createPath(ctx, c, path); err != nil {
			return r, err
		}
	}
	w := newWriter(ctx, c, p)
	err := p.copy(ctx, w, &r)
	if err == nil {
		err = p.raiseCounters(w)
	}
	if e := w.finish(); err == nil || errors.Is(err, context.Canceled) && e != nil && ctx.Err() == nil {
		err = e // it stopped the reading
	}
	r.Created, r.Overwritten, r.Counters, r.Bytes = w.sums()
	if err == nil {
		err = p.writeQuotas(ctx, c)
	}
	if err == nil {
		r.Quotas = len(p.quotas)
	}
	return r, err
}

// fetched is the data of one znode on its way from the ensemble to the cluster.
type fetched struct {
	action action
	data   []byte
	stat   znode.Stat
	err    error
	weight int64
	done   chan struct{}
}

// copy reads many znodes at a time and writes them in their order, parents first.
func (p *Plan) copy(ctx context.Context, w *writer, r *Result) error {
	g, ctx := errgroup.WithContext(w.ctx)
	room := semaphore.NewWeighted(readAheadBytes)
	work := make(chan *fetched)
	line := make(chan *fetched, readAhead)
	g.Go(func() error {
		defer close(work)
		defer close(line)
		for _, a := range p.todo {
			f := &fetched{action: a, done: make(chan struct{})}
			f.weight = min(int64(p.survey.nodes[a.at].bytes)+nodeOverhead, readAheadBytes)
			if err := room.Acquire(ctx, f.weight); err != nil {
				return err
			}
			for _, to := range []chan *fetched{line, work} {
				select {
				case to <- f:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		return nil
	})
	for range readsAtOnce {
		g.Go(func() error {
			for f := range work {
				f.data, f.stat, f.err = p.survey.source.data(ctx, p.survey.nodes[f.action.at].path)
				close(f.done)
			}
			return nil
		})
	}
	g.Go(func() error {
		for f := range line {
			select {
			case <-f.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := p.write(w, f, r); err != nil {
				return err
			}
			room.Release(f.weight)
		}
		return nil
	})
	return g.Wait()
}

// write hands one znode to the writer.
func (p *Plan) write(w *writer, f *fetched, r *Result) error {
	n := &p.survey.nodes[f.action.at]
	switch {
	case errors.Is(f.err, wire.NoNode):
		r.changed(n.path)
		p.gone(f.action.at)
		return nil // and so is all below it
	case f.err != nil:
		return sourceError(n.path, f.err)
	case len(f.data) > p.limits.NodeBytes:
		return fmt.Errorf("%s: %d bytes of data by now, at most %d (limits.node_size): %w", n.path, len(f.data), p.limits.NodeBytes, client.ErrTooLarge)
	case f.stat.Mzxid != n.mzxid || f.stat.Czxid != n.czxid:
		r.changed(n.path)
	}
	path, acl := p.to(n.path), p.survey.aclOf(n)
	if f.action.create {
		return w.add(unit{created: 1, bytes: int64(len(f.data))}, weigh(path, f.data, acl),
			client.OpCreate(path, f.data, client.WithACL(acl...)))
	}
	var ops []client.Op
	if f.action.data {
		ops = append(ops, client.OpSet(path, f.data, f.action.version))
	}
	if f.action.acl {
		ops = append(ops, client.OpSetACL(path, acl, f.action.aversion))
	}
	u := unit{overwritten: 1, bytes: int64(len(f.data))}
	if f.action.first {
		u.created, u.overwritten = 1, 0
	}
	return w.add(u, 2*weigh(path, f.data, acl), ops...)
}

func (r *Result) changed(path string) {
	if len(r.Changed) < maxChanged {
		r.Changed = append(r.Changed, path)
	}
}

// weigh is what an operation takes in a message, roughly.
func weigh(path string, data []byte, acl []znode.ACL) int {
	n := 64 + len(path) + len(data)
	for _, a := range acl {
		n += 16 + len(a.Scheme) + len(a.ID)
	}
	return n
}

// gone notes that a znode will not be created. Its parent's counter lacks that
// create, unless the parent is gone too.
func (p *Plan) gone(at int32) {
	if p.left == nil {
		p.left, p.short = map[int32]bool{}, map[int32]bool{}
	}
	p.left[at] = true
	if parent := p.survey.nodes[at].parent; parent >= 0 && !p.left[parent] && !p.short[parent] {
		p.short[parent] = true
		p.raise = append(p.raise, parent) // a second time does no harm
	}
}

// raiseCounters comes behind all creates, which raise the counters too.
func (p *Plan) raiseCounters(w *writer) error {
	for _, at := range p.raise {
		if p.left[at] {
			continue
		}
		n := &p.survey.nodes[at]
		path := p.to(n.path)
		if err := w.add(unit{counters: 1}, weigh(path, nil, nil), client.OpSequence(path, n.creates)); err != nil {
			return err
		}
	}
	return nil
}
