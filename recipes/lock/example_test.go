package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/localcluster"
	"github.com/coordd/coord/recipes/lock"
)

// withClients runs f with two clients of a server of its own.
func withClients(f func(ctx context.Context, a, b *client.Client)) {
	ctx := context.Background()
	lc, err := localcluster.Start(ctx, localcluster.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = lc.Close() }()
	var cs [2]*client.Client
	for i := range cs {
		if cs[i], err = client.Dial(ctx, lc.Target(), client.WithSessionName(fmt.Sprintf("worker-%d", i))); err != nil {
			log.Fatal(err)
		}
		defer func() { _ = cs[i].Close() }()
	}
	f(ctx, cs[0], cs[1])
}

func ExampleMutex_Do() {
	withClients(func(ctx context.Context, a, b *client.Client) {
		var first, second bool
		err := lock.New(a, "/locks/report").Do(ctx, func(ctx context.Context, h *lock.Handle) error {
			first = h.FencingToken() > 0 // goes with each write to the resource
			return nil                   // ctx ends if the lock is lost
		})
		fmt.Println(first, err)

		// The entry that holds the lock can stand in a transaction: it is done
		// only while this very acquisition holds.
		err = lock.New(b, "/locks/report").Do(ctx, func(ctx context.Context, h *lock.Handle) error {
			_, err := b.Txn(ctx, h.Guard(), client.OpCreate("/report-done", nil))
			second = err == nil
			return err
		})
		fmt.Println(second, err)
	})
	// Output:
	// true <nil>
	// true <nil>
}

func ExampleMutex_TryAcquire() {
	withClients(func(ctx context.Context, a, b *client.Client) {
		held, err := lock.New(a, "/locks/report").Acquire(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		_, err = lock.New(b, "/locks/report").TryAcquire(ctx)
		var busy *lock.BusyError
		if errors.As(err, &busy) {
			fmt.Println("held by", busy.Holder.Owner, busy.Holder.Token == held.FencingToken())
		}
		fmt.Println(held.Release(ctx))
	})
	// Output:
	// held by worker-0 true
	// <nil>
}
