package lock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

func ExampleMulti_Do() {
	withClients(func(ctx context.Context, a, b *client.Client) {
		// Two accounts, whoever is first: both locks or none.
		move := func(c *client.Client, from, to string) error {
			return lock.NewMulti(c, []string{from, to}).Do(ctx, func(ctx context.Context, h *lock.MultiHandle) error {
				debit, credit := h.Handle(from).FencingToken(), h.Handle(to).FencingToken()
				fmt.Println("both held:", debit > 0 && credit > 0)
				return nil // each token goes with the writes to its account
			})
		}
		done := make(chan error, 1)
		go func() { done <- move(a, "/accounts/ann", "/accounts/bob") }()
		err := move(b, "/accounts/bob", "/accounts/ann")
		fmt.Println(err, <-done)
	})
	// Output:
	// both held: true
	// both held: true
	// <nil> <nil>
}

func ExampleRefuseDeadlock() {
	withClients(func(ctx context.Context, a, b *client.Client) {
		one := func(c *client.Client, path string) *lock.Handle {
			h, err := lock.New(c, path).Acquire(ctx)
			if err != nil {
				fmt.Println(err)
			}
			return h
		}
		first := one(a, "/locks/x")
		one(b, "/locks/y")
		done := make(chan error, 1)
		go func() { // b waits for x
			_, err := lock.New(b, "/locks/x").Acquire(ctx)
			done <- err
		}()
		for {
			if x, err := lock.Inspect(ctx, a, "/locks/x"); err != nil || len(x.Waiters) > 0 {
				break
			}
		}
		_, err := lock.New(a, "/locks/y", lock.RefuseDeadlock()).Acquire(ctx)
		fmt.Println(errors.Is(err, lock.ErrDeadlock))
		var deadlock *lock.DeadlockError
		if errors.As(err, &deadlock) {
			fmt.Println(deadlock.Cycle)
		}
		fmt.Println(first.Release(ctx), <-done)
	})
	// Output:
	// true
	// worker-1 waits for /locks/x, which worker-0 holds; worker-0 waits for /locks/y, which worker-1 holds
	// <nil> <nil>
}
