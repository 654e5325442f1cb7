package barrier_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/localcluster"
	"github.com/coordd/coord/recipes/barrier"
)

// withClient runs f with a client of a server of its own.
func withClient(f func(ctx context.Context, c *client.Client) error) {
	ctx := context.Background()
	lc, err := localcluster.Start(ctx, localcluster.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = lc.Close() }()
	c, err := client.Dial(ctx, lc.Target())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := f(ctx, c); err != nil {
		fmt.Println(err)
	}
}

func ExampleBarrier() {
	withClient(func(ctx context.Context, c *client.Client) error {
		gate := barrier.New(c, "/maintenance")
		if err := gate.Raise(ctx); err != nil {
			return err
		}
		waited := make(chan error, 1)
		go func() { waited <- gate.Wait(ctx) }()
		fmt.Println("maintenance is done")
		if err := gate.Lower(ctx); err != nil {
			return err
		}
		fmt.Println("workers go on:", <-waited)
		return nil
	})
	// Output:
	// maintenance is done
	// workers go on: <nil>
}

func ExampleDouble() {
	withClient(func(ctx context.Context, c *client.Client) error {
		var mu sync.Mutex
		started, ended := 0, 0
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				leave, err := barrier.NewDouble(c, "/import", 3).Enter(ctx) // returns when three are there
				if err != nil {
					fmt.Println(err)
					return
				}
				mu.Lock()
				started++
				mu.Unlock()
				if err := leave(ctx); err != nil { // returns when three are done
					fmt.Println(err)
				}
				mu.Lock()
				ended++
				if started != 3 {
					fmt.Println("one has left before all have started")
				}
				mu.Unlock()
			})
		}
		wg.Wait()
		fmt.Println(started, ended)
		return nil
	})
	// Output:
	// 3 3
}
