package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// attempt is what one of two attempts at once has come to.
type attempt struct {
	got receipt
	err error
}

// overlap makes two attempts at one payment at the same time: the first is held
// in its transaction until the second waits for it, and then commits or fails.
// want is the outcome of the second.
func (r *clickRun) overlap(ctx context.Context, t transfer, fails error, want outcome) error {
	old, err := r.grant(ctx, "node 1")
	if err != nil {
		return err
	}
	fresh, err := r.grant(ctx, "node 2")
	if err != nil {
		return err
	}
	return r.collide(ctx, t, old, fresh, fails, want)
}

// collide is overlap with permits at hand.
func (r *clickRun) collide(ctx context.Context, t transfer, old, fresh permit, fails error, want outcome) error {
	inside, goOn := make(chan struct{}), make(chan struct{})
	slow := *r.bank
	arrive := sync.OnceFunc(func() { close(inside) }) // a transaction may begin again
	slow.beforeCommit = func() error {
		arrive()
		select {
		case <-goOn:
			return fails
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	first, second := make(chan attempt, 1), make(chan attempt, 1)
	pay := func(b *bank, p permit, to chan<- attempt) {
		got, err := b.transfer(ctx, t, p)
		to <- attempt{got, err}
	}
	go pay(&slow, old, first)
	select {
	case <-inside:
	case a := <-first:
		return errors.Join(ErrUnexpected, a.err)
	}
	r.say("node 1", "%s: is in the middle of its transaction, token %s", t.ID, old.Token)
	go pay(r.bank, fresh, second)
	err := r.waiting(ctx)
	close(goOn)
	a, b := <-first, <-second
	if err != nil {
		return err
	}
	r.say("node 2", "%s: waits for node 1's transaction, token %s", t.ID, fresh.Token)
	r.sayAttempt("node 1", t, a)
	r.sayAttempt("node 2", t, b)
	if !errors.Is(a.err, fails) || b.err != nil || b.got.Outcome != want {
		return r.broken(ErrUnexpected, "the second attempt at %s came to %q (%v)", t.ID, b.got.Outcome, errors.Join(a.err, b.err))
	}
	return nil
}

// overlapGrace is how long the second attempt may take to come to the first.
const overlapGrace = 20 * time.Second

// waiting returns when some transaction waits for another.
func (r *clickRun) waiting(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, overlapGrace, fmt.Errorf("%w: nobody waits for node 1's transaction", ErrUnexpected))
	defer cancel()
	for {
		n, err := number(ctx, r.db.DB, `SELECT count(*) FROM pg_locks WHERE NOT granted`)
		if err != nil || n > 0 {
			return err
		}
		if err := lookAgain(ctx); err != nil {
			return err
		}
	}
}

func (r *clickRun) sayAttempt(who string, t transfer, a attempt) {
	if a.err != nil {
		r.say(who, "%s: %v", t.ID, a.err)
		return
	}
	r.say(who, "%s: %s, under token %s", t.ID, a.got.Outcome, a.got.By)
}
