package once_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/localcluster"
	"github.com/coordd/coord/recipes/lock"
	"github.com/coordd/coord/recipes/once"
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
		if cs[i], err = client.Dial(ctx, lc.Target()); err != nil {
			log.Fatal(err)
		}
		defer func() { _ = cs[i].Close() }()
	}
	f(ctx, cs[0], cs[1])
}

// Two hosts want the same night's job done.
func ExampleJob_Do() {
	withClients(func(ctx context.Context, a, b *client.Client) {
		write := func(_ context.Context, t once.Turn) error {
			// To the database, with t.Token and t.Key: see sqlfence.Once.
			fmt.Println("writing the invoices of", t.Period, "under", t.Key)
			return nil
		}
		for i, c := range []*client.Client{a, b} {
			owner := once.Lock(lock.Owner(fmt.Sprint("host-", i+1)))
			done, err := once.New(c, "/jobs/invoices", owner).Do(ctx, "2026-01-31", write)
			fmt.Println("done by", done.By, done.Repeated, err)
		}
	})
	// Output:
	// writing the invoices of 2026-01-31 under /jobs/invoices@2026-01-31
	// done by host-1 false <nil>
	// done by host-1 true <nil>
}

// Two hosts follow the same schedule until the period after the present one is
// done.
func ExampleJob_Run() {
	withClients(func(ctx context.Context, a, b *client.Client) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		var mu sync.Mutex
		runs := map[string]int{}
		work := func(_ context.Context, t once.Turn) error {
			mu.Lock()
			defer mu.Unlock()
			if runs[t.Period]++; len(runs) == 2 {
				stop()
			}
			return nil
		}
		var wg sync.WaitGroup
		for _, c := range []*client.Client{a, b} {
			wg.Go(func() { fmt.Println(once.New(c, "/jobs/poll").Run(ctx, once.Every(time.Second), work)) })
		}
		wg.Wait()
		for _, n := range runs {
			fmt.Println("ran", n, "time")
		}
	})
	// Output:
	// context canceled
	// context canceled
	// ran 1 time
	// ran 1 time
}
