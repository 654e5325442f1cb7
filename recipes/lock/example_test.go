package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
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
		if cs[i], err = client.Dial(ctx, lc.Target(), client.WithSessionName(fmt.Sprintf("worker-%d", i)),
			client.WithLogger(slog.New(slog.DiscardHandler))); err != nil {
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

func ExampleRWMutex() {
	withClients(func(ctx context.Context, a, b *client.Client) {
		prices := lock.NewRW(a, "/locks/prices")
		one, err := prices.AcquireRead(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		two, err := lock.NewRW(b, "/locks/prices").AcquireRead(ctx) // readers share
		fmt.Println(one.Held(), two.Held(), err)

		_, err = prices.TryAcquireWrite(ctx)
		fmt.Println(errors.Is(err, lock.ErrBusy))
		fmt.Println(one.Release(ctx), two.Release(ctx))

		err = prices.DoWrite(ctx, func(ctx context.Context, h *lock.Handle) error {
			fmt.Println(h.FencingToken() > two.FencingToken())
			return nil
		})
		fmt.Println(err)
	})
	// Output:
	// true true <nil>
	// true
	// <nil> <nil>
	// true
	// <nil>
}

// Each holder works on the part that its slot names, and the resource keeps a mark
// for each part.
func ExampleSemaphore() {
	withClients(func(ctx context.Context, a, b *client.Client) {
		one, err := lock.NewSemaphore(a, "/workers", 2).Acquire(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		two, err := lock.NewSemaphore(b, "/workers", 2).Acquire(ctx)
		fmt.Println("parts", one.Slot(), two.Slot(), err)

		_, err = lock.NewSemaphore(b, "/workers", 3).Acquire(ctx)
		fmt.Println(err)
		fmt.Println(one.Release(ctx), two.Release(ctx))
	})
	// Output:
	// parts 0 1 <nil>
	// semaphore /workers: in use with a limit of 2, not 3
	// <nil> <nil>
}

// The lock of a holder that was killed stays taken for the lock-delay, and others
// see until when.
func ExampleLockDelay() {
	withClients(func(ctx context.Context, a, b *client.Client) {
		s, err := a.NewSession(ctx, client.WithIdentity("printer"), client.WithSessionName("printer"))
		if err != nil {
			fmt.Println(err)
			return
		}
		held, err := lock.New(a, "/locks/printer", lock.WithSession(s), lock.LockDelay(2*time.Second)).Acquire(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		// The program was started again; its former session ends.
		if _, err := b.NewSession(ctx, client.WithIdentity("printer")); err != nil {
			fmt.Println(err)
			return
		}
		<-held.Lost()
		_, err = lock.New(b, "/locks/printer").TryAcquire(ctx)
		var busy *lock.BusyError
		fmt.Println(errors.As(err, &busy) && busy.Holder.LingersUntil.After(time.Now()))
		next, err := lock.New(b, "/locks/printer").Acquire(ctx)
		fmt.Println(next.FencingToken() > held.FencingToken(), err)
	})
	// Output:
	// true
	// true <nil>
}

func ExampleCorrect() {
	withClients(func(ctx context.Context, a, _ *client.Client) {
		var printer fence.Gate // the resource's memory
		err := lock.Correct(a, "/locks/printer").Do(ctx, func(ctx context.Context, token fence.Token) error {
			return printer.Admit(ctx, "printer", token)
		})
		fmt.Println(err)
	})
	// Output:
	// <nil>
}

// A worker tells others where it can be found.
func ExampleHandle_SetValue() {
	withClients(func(ctx context.Context, a, b *client.Client) {
		h, err := lock.New(a, "/locks/leader", lock.Value([]byte("starting"))).Acquire(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(h.SetValue(ctx, []byte("10.0.0.7:80")))
		info, err := lock.Inspect(ctx, b, "/locks/leader")
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s: %s holds it, at %s\n", info.Kind, info.Holders[0].Owner, info.Holders[0].Value)
	})
	// Output:
	// <nil>
	// mutex: worker-0 holds it, at 10.0.0.7:80
}
