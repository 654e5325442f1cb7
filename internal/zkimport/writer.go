package zkimport

import (
	"context"
	"sync"

	"github.com/coordd/coord/client"
)

const (
	// txnsAtOnce is how many transactions are under way.
	txnsAtOnce = 8
	// txnOps and txnBytes bound one, below what the cluster takes: it is one entry of
	// the log, and others wait behind it.
	txnOps   = 500
	txnBytes = 512 << 10
)

// unit is what one znode adds to the sums.
type unit struct {
	created, overwritten, counters int
	bytes                          int64
}

// writer gathers operations into transactions and sends them in order, without
// waiting for the answers. One goroutine may use it.
type writer struct {
	client   *client.Client
	progress *Progress
	ctx      context.Context // ends with the first failure
	cancel   context.CancelCauseFunc
	slots    chan struct{}
	maxOps   int
	maxBytes int

	ops   []client.Op
	units []unit
	bytes int

	mu  sync.Mutex // guards the sum
	sum unit
}

func newWriter(ctx context.Context, c *client.Client, p *Plan) *writer {
	w := &writer{
		client: c, progress: p.survey.progress, slots: make(chan struct{}, txnsAtOnce),
		maxOps: min(txnOps, p.limits.OpsPerTxn), maxBytes: min(txnBytes, p.limits.FrameBytes/2),
	}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	return w
}

// add puts in the operations for one znode, which stay in one transaction unless
// that is too much for one. weight is their size.
func (w *writer) add(u unit, weight int, ops ...client.Op) error {
	if len(w.ops) > 0 && (len(w.ops)+len(ops) > w.maxOps || w.bytes+weight > w.maxBytes) {
		if err := w.flush(); err != nil {
			return err
		}
	}
	for i, op := range ops {
		w.ops = append(w.ops, op)
		if i < len(ops)-1 && (len(w.ops) >= w.maxOps || weight > w.maxBytes) {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	w.bytes += weight
	w.units = append(w.units, u)
	return nil
}

// flush sends what is gathered. It waits for room, not for the answer.
func (w *writer) flush() error {
	if len(w.ops) == 0 {
		return nil
	}
	select {
	case w.slots <- struct{}{}:
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
	ops, units := w.ops, w.units
	w.ops, w.units, w.bytes = nil, nil, 0
	err := w.client.WriteAsync(func(_ []client.OpResult, err error) {
		defer func() { <-w.slots }()
		if err != nil {
			w.cancel(err)
			return
		}
		w.count(units)
	}, ops...)
	if err != nil {
		<-w.slots
		w.cancel(err)
	}
	return err
}

func (w *writer) count(units []unit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.sum.bytes
	for _, u := range units {
		w.sum.created += u.created
		w.sum.overwritten += u.overwritten
		w.sum.counters += u.counters
		w.sum.bytes += u.bytes
	}
	w.progress.add(len(units), w.sum.bytes-before)
}

// finish sends the rest and waits for all answers, or for the end of the context.
// It returns the first failure.
func (w *writer) finish() error {
	_ = w.flush() // its failure is the context's cause
	for range cap(w.slots) {
		select {
		case w.slots <- struct{}{}:
		case <-w.ctx.Done():
			return context.Cause(w.ctx)
		}
	}
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	w.cancel(nil)
	return nil
}

func (w *writer) sums() (created, overwritten, counters int, bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sum.created, w.sum.overwritten, w.sum.counters, w.sum.bytes
}
