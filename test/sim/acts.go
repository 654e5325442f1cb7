package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/check"
	"github.com/coordd/coord/recipes/election"
	"github.com/coordd/coord/recipes/lock"
)

// act is one thing that riders do with their client, and how often.
type act[C any] struct {
	weight int
	name   string
	do     func(*rider, context.Context, C) error
}

// acts is a function because the acts name it by way of the rider.
func acts() []act[*check.Client] {
	return []act[*check.Client]{
		{16, "set", (*rider).set},
		{8, "set at a version", (*rider).setAt},
		{20, "get", (*rider).get},
		{5, "create", (*rider).create},
		{5, "delete", (*rider).delete},
		{6, "create ephemeral", (*rider).ephemeral},
		{6, "enqueue", (*rider).enqueue},
		{5, "dequeue", (*rider).dequeue},
		{5, "children", (*rider).children},
		{6, "transaction", (*rider).txn},
		{5, "pipeline", (*rider).pipeline},
		{2, "fleeting", (*rider).fleeting},
		{2, "sync", (*rider).sync},
		{6, "lock", (*rider).lock},
		{4, "read-write lock", (*rider).rwlock},
		{4, "semaphore", (*rider).semaphore},
		{4, "lead", (*rider).lead},
		{2, "ask who leads", (*rider).leader},
		{1, "close", (*rider).close},
	}
}

var allActs = acts()

// doOne does one of the things of a list. A few of them are not waited for to the
// end.
func doOne[C any](ctx context.Context, r *rider, list []act[C], c C) error {
	sum := 0
	for _, a := range list {
		sum += a.weight
	}
	n := r.rnd.IntN(sum)
	i := slices.IndexFunc(list, func(a act[C]) bool { n -= a.weight; return n < 0 })
	r.says(list[i].name)
	if r.rnd.IntN(40) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.w.cfg.paces(3*r.rnd.Float64()))
		defer cancel()
	}
	err := list[i].do(r, ctx, c)
	r.says("think")
	return err
}

// era changes now and then, and the names of what is worked at with it: many
// short histories are judged sooner than a long one.
func (r *rider) era() int { return int(time.Since(r.w.began) / r.w.cfg.paces(40)) }

// datum is one that no other write has.
func (r *rider) datum() string {
	r.writes++
	return fmt.Sprintf("%d.%d.%d", r.number, r.lives, r.writes)
}

// register is a znode that many set and get.
func (r *rider) register() string { return fmt.Sprintf("/r-%d-%d", r.era(), r.rnd.IntN(3)) }

// item is a znode that comes and goes.
func (r *rider) item() string { return fmt.Sprintf("/d-%d-%d", r.era(), r.rnd.IntN(2)) }

// mode is how something is read.
func (r *rider) mode() client.ReadMode {
	return []client.ReadMode{client.Linearizable, client.Linearizable, client.ReadSession, client.ReadStale}[r.rnd.IntN(4)]
}

// made makes what is not there, once in an era for each.
func (r *rider) made(ctx context.Context, c *check.Client, path string, err error) error {
	if !errors.Is(err, client.ErrNoNode) {
		return err
	}
	_, err = c.Create(ctx, path, r.datum(), 0)
	return err
}

func (r *rider) set(ctx context.Context, c *check.Client) error {
	path := r.register()
	_, err := c.Set(ctx, path, r.datum(), client.AnyVersion)
	return r.made(ctx, c, path, err)
}

func (r *rider) setAt(ctx context.Context, c *check.Client) error {
	path := r.register()
	n, err := c.Get(ctx, path, r.mode())
	if err != nil {
		return r.made(ctx, c, path, err)
	}
	_, err = c.Set(ctx, path, r.datum(), n.Stat.Version)
	return err
}

func (r *rider) get(ctx context.Context, c *check.Client) error {
	path := r.register()
	if r.rnd.IntN(3) == 0 {
		path = r.item()
	}
	_, err := c.Get(ctx, path, r.mode())
	return err
}

func (r *rider) create(ctx context.Context, c *check.Client) error {
	_, err := c.Create(ctx, r.item(), r.datum(), 0)
	return err
}

func (r *rider) delete(ctx context.Context, c *check.Client) error {
	return c.Delete(ctx, r.item(), client.AnyVersion)
}

func (r *rider) ephemeral(ctx context.Context, c *check.Client) error {
	_, err := c.Create(ctx, fmt.Sprintf("/e-%d-%d", r.era(), r.rnd.IntN(3)), r.datum(), check.Ephemeral)
	return err
}

func (r *rider) queue() string { return fmt.Sprintf("/q-%d", r.era()) }

func (r *rider) enqueue(ctx context.Context, c *check.Client) error {
	flags := check.Sequential
	if r.rnd.IntN(2) == 0 {
		flags |= check.Ephemeral
	}
	path := r.queue()
	_, err := c.Create(ctx, path+"/n-", r.datum(), flags)
	return r.made(ctx, c, path, err)
}

func (r *rider) dequeue(ctx context.Context, c *check.Client) error {
	names, err := c.Children(ctx, r.queue(), r.mode())
	if err != nil || len(names) == 0 {
		return err
	}
	return c.Delete(ctx, r.queue()+"/"+slices.Min(names), client.AnyVersion)
}

func (r *rider) children(ctx context.Context, c *check.Client) error {
	_, err := c.Children(ctx, r.queue(), r.mode())
	return err
}

// txn moves a datum from one register to another, or makes an item with it.
func (r *rider) txn(ctx context.Context, c *check.Client) error {
	from, to := r.register(), r.register()
	n, err := c.Get(ctx, from, client.Linearizable)
	if err != nil {
		return r.made(ctx, c, from, err)
	}
	ops := []check.Record{check.OpCheck(from, n.Stat.Version)}
	switch {
	case from != to:
		ops = append(ops, check.OpSet(to, r.datum(), client.AnyVersion))
	default:
		ops = append(ops, check.OpCreate(r.item(), r.datum(), 0))
	}
	_, err = c.Txn(ctx, ops...)
	return err
}

// pipeline sets several times without waiting in between.
func (r *rider) pipeline(ctx context.Context, c *check.Client) error {
	path := r.register()
	n := 2 + r.rnd.IntN(6)
	done := make(chan error, n)
	for range n {
		if err := c.SetAsync(path, r.datum(), client.AnyVersion, func(err error) { done <- err }); err != nil {
			return err
		}
	}
	var last error
	for range n {
		if err := <-done; err != nil {
			last = err
		}
	}
	return r.made(ctx, c, path, last)
}

// fleeting makes znodes that go by themselves.
func (r *rider) fleeting(ctx context.Context, c *check.Client) error {
	path := fmt.Sprintf("/f-%d-%d", r.era(), r.rnd.IntN(4))
	opt := client.WithContainer()
	if r.rnd.IntN(2) == 0 {
		opt = client.WithTTL(r.w.cfg.Pace.Round(time.Millisecond) * 3)
	}
	_, err := c.Create(ctx, path, r.datum(), check.Fleeting, opt)
	return err
}

func (r *rider) sync(ctx context.Context, c *check.Client) error {
	_, err := c.Sync(ctx)
	return err
}

// patience is how long a rider waits for a lock.
func (r *rider) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.w.cfg.paces(20*r.rnd.Float64()))
}

// hold works under a lock for a while, and gives it up.
func (r *rider) hold(ctx context.Context, h *check.Held, err error) error {
	if err != nil {
		return err
	}
	select {
	case <-h.Lost():
		return nil
	case <-ctx.Done():
	case <-time.After(r.w.cfg.paces(3 * r.rnd.Float64())):
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.w.cfg.paces(30))
	defer cancel()
	return h.Release(ctx)
}

func (r *rider) lock(ctx context.Context, c *check.Client) error {
	path := fmt.Sprintf("/l-%d", r.rnd.IntN(2))
	wait, cancel := r.patience(ctx)
	defer cancel()
	h, err := c.Acquire(wait, path, check.Alone, 0, lock.New(c.Client, path).Acquire)
	return r.hold(ctx, h, err)
}

func (r *rider) rwlock(ctx context.Context, c *check.Client) error {
	wait, cancel := r.patience(ctx)
	defer cancel()
	m := lock.NewRW(c.Client, "/rw")
	as, acquire := check.Shared, m.AcquireRead
	if r.rnd.IntN(3) == 0 {
		as, acquire = check.Alone, m.AcquireWrite
	}
	h, err := c.Acquire(wait, "/rw", as, 0, acquire)
	return r.hold(ctx, h, err)
}

func (r *rider) semaphore(ctx context.Context, c *check.Client) error {
	wait, cancel := r.patience(ctx)
	defer cancel()
	h, err := c.Acquire(wait, "/sem", check.Slot, 2, lock.NewSemaphore(c.Client, "/sem", 2).Acquire)
	return r.hold(ctx, h, err)
}

// electionPath is where all stand for.
const electionPath = "/election"

// lead stands for a while, and if it is elected tells one thing after the other, and
// resigns.
func (r *rider) lead(ctx context.Context, c *check.Client) error {
	wait, cancel := r.patience(ctx)
	defer cancel()
	l, err := c.Campaign(wait, election.New(c.Client, electionPath), r.datum())
	if err != nil {
		return err
	}
	for range r.rnd.IntN(4) {
		select {
		case <-l.Lost():
			return nil
		case <-time.After(r.w.cfg.paces(r.rnd.Float64())):
		}
		telling, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.w.cfg.paces(10))
		_ = l.Proclaim(telling, r.datum()) // a leader that is none any more hears it here
		cancel()
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), r.w.cfg.paces(30))
	defer cancel()
	return l.Resign(ctx)
}

func (r *rider) leader(ctx context.Context, c *check.Client) error {
	err := c.Leader(ctx, election.New(c.Client, electionPath))
	if errors.Is(err, election.ErrNoLeader) {
		return nil
	}
	return err
}

// observe is told who leads, over and over.
func (r *rider) observe(ctx context.Context, c *check.Client) {
	for ctx.Err() == nil {
		_ = c.Observe(ctx, election.New(c.Client, electionPath)) // it ends with the session, or is told to
		select {
		case <-ctx.Done():
		case <-time.After(r.w.cfg.Pace):
		}
	}
}

// close ends the session, and with it this life of the rider.
func (r *rider) close(context.Context, *check.Client) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.vanished:
	default:
		close(r.vanished)
	}
	return nil
}

// watch sees everything that happens, over and over.
func (r *rider) watch(ctx context.Context, c *check.Client) {
	for ctx.Err() == nil {
		_ = c.Watch(ctx, "/", 0, nil) // it ends with the session, or is told to
		select {
		case <-ctx.Done():
		case <-time.After(r.w.cfg.Pace):
		}
	}
}
