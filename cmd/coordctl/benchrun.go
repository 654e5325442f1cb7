package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coord/client"
)

// Phases of a run.
const (
	warming int32 = iota
	measuring
	finished
)

// bench is one run: its clients and what they share.
type bench struct {
	*env
	options *benchOptions
	root    string // everything is made below it
	clients []*client.Client
	keys    []string
	value   []byte
	phase   atomic.Int32
	start   time.Time // latencies are measured from it
}

const (
	// benchDials is how many clients connect at the same time.
	benchDials = 16
	// benchSession is long, so that a machine at its limit loses no session.
	benchSession = 30 * time.Second
	// benchBatch is how many znodes one transaction prepares or deletes.
	benchBatch = 200
)

// newBench connects all clients and prepares what the workload needs.
func (e *env) newBench(ctx context.Context, o *benchOptions) (*bench, error) {
	var id [4]byte
	_, _ = rand.Read(id[:]) // it does not fail
	b := &bench{
		env: e, options: o, root: "/coordctl-bench-" + hex.EncodeToString(id[:]),
		clients: make([]*client.Client, o.clients), value: make([]byte, o.valueSize), start: time.Now(),
	}
	_, _ = rand.Read(b.value)
	err := b.connect(ctx)
	if err == nil {
		err = b.prepare(ctx)
	}
	if err != nil {
		return nil, joinClose(err, b.close(ctx))
	}
	return b, nil
}

func (b *bench) connect(ctx context.Context) error {
	t, err := b.resolve()
	if err != nil {
		return err
	}
	opts, err := t.options(b.env)
	if err != nil {
		return err
	}
	opts = append(opts, client.WithReads(b.options.mode), client.WithSessionTimeout(benchSession))
	return parallel(len(b.clients), benchDials, func(i int) error {
		p := b.pace(ctx)
		defer p.stop()
		c, err := client.Dial(p.ctx, t.Endpoints[i%len(t.Endpoints)], opts...)
		b.clients[i] = c
		return b.diagnose(ctx, p.result(err))
	})
}

// parallel calls f for 0 to n-1, at most width at a time, and returns the first
// error.
func parallel(n, width int, f func(i int) error) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	var once sync.Once
	var failed atomic.Bool
	var first error
	for range min(n, width) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && !failed.Load(); i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					once.Do(func() { first = err; failed.Store(true) })
				}
			}
		})
	}
	wg.Wait()
	return first
}

func (b *bench) prepare(ctx context.Context) error {
	c := b.clients[0]
	if _, err := c.Create(ctx, b.root, nil); err != nil {
		return err
	}
	switch b.options.workload {
	case benchCreate:
		return parallel(len(b.clients), benchDials, func(i int) error {
			_, err := b.clients[i].Create(ctx, b.parent(i), nil)
			return err
		})
	case benchSet, benchGet, benchMixed:
		b.keys = make([]string, b.options.keys)
		for i := range b.keys {
			b.keys[i] = fmt.Sprintf("%s/k%06d", b.root, i)
		}
		return b.createKeys(ctx)
	default:
		return nil
	}
}

// parent is where client i creates.
func (b *bench) parent(i int) string { return fmt.Sprintf("%s/c%05d", b.root, i) }

func (b *bench) createKeys(ctx context.Context) error {
	batches := (len(b.keys) + benchBatch - 1) / benchBatch
	return parallel(batches, benchDials, func(i int) error {
		var ops []client.Op
		for _, k := range b.keys[i*benchBatch : min((i+1)*benchBatch, len(b.keys))] {
			ops = append(ops, client.OpCreate(k, b.value))
		}
		_, err := b.clients[i%len(b.clients)].Txn(ctx, ops...)
		return err
	})
}

// run loads the cluster through warm-up and measurement.
func (b *bench) run(ctx context.Context) (*benchResult, error) {
	o := b.options
	load := b.startLoad
	if o.workload == benchLock {
		load = b.startLock
	}
	wait := load(ctx)
	err := b.sleep(ctx, o.warmup)
	var before, after usage
	var began time.Time
	if err == nil {
		before, err = b.usage(ctx)
	}
	began = time.Now()
	b.phase.CompareAndSwap(warming, measuring)
	if err == nil {
		err = b.sleep(ctx, o.duration)
	}
	b.phase.Store(finished)
	elapsed := time.Since(began)
	if err == nil {
		after, err = b.usage(ctx)
	}
	total := wait()
	if err != nil {
		return nil, err
	}
	b.noteMissing(ctx, &after)
	r := b.result(total, elapsed)
	r.account(&before, &after, elapsed)
	return r, nil
}

func (b *bench) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return errInterrupted
	case <-time.After(d):
		return nil
	}
}

// tally is what a client has counted while measuring.
type tally struct {
	latency histogram
	errors  uint64
	first   error
}

func (t *tally) fail(err error) {
	if t.errors++; t.first == nil {
		t.first = err
	}
}

func (t *tally) merge(other *tally) {
	t.latency.merge(&other.latency)
	t.errors += other.errors
	if t.first == nil {
		t.first = other.first
	}
}

func (b *bench) result(t *tally, elapsed time.Duration) *benchResult {
	o := b.options
	r := &benchResult{
		Workload: o.workload, Clients: o.clients, Depth: o.depth, Keys: len(b.keys), ValueSize: o.valueSize,
		Seconds: elapsed.Seconds(), Ops: t.latency.n, Errors: t.errors,
	}
	if o.workload == benchGet || o.workload == benchMixed {
		r.ReadMode = o.readMode
	}
	if t.first != nil {
		r.FirstError = t.first.Error()
	}
	r.OpsPerSecond = float64(r.Ops) / r.Seconds
	r.latencies(&t.latency)
	return r
}

// close deletes what the run made, and ends the sessions.
func (b *bench) close(ctx context.Context) error {
	var err error
	if c := b.clients[0]; c != nil && !b.options.keep {
		d := &deleter{env: b.env, client: c, root: b.root}
		if err = d.run(context.WithoutCancel(ctx)); errors.Is(err, client.ErrNoNode) {
			err = nil
		}
		if err != nil {
			err = fmt.Errorf("bench: tidy up %s: %w", b.root, err)
		}
	}
	closing := parallel(len(b.clients), benchDials, func(i int) error {
		if b.clients[i] == nil {
			return nil
		}
		return b.clients[i].Close()
	})
	return joinClose(err, closing)
}
