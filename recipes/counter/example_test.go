package counter_test

import (
	"context"
	"fmt"
	"log"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/localcluster"
	"github.com/coordd/coord/recipes/counter"
)

// withClient runs f with a client of a server of its own.
func withClient(f func(ctx context.Context, c *client.Client)) {
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
	f(ctx, c)
}

func ExampleCounter_Add() {
	withClient(func(ctx context.Context, c *client.Client) {
		invoices := counter.New(c, "/counters/invoices")
		for range 2 {
			fmt.Println(invoices.Add(ctx, 1))
		}
		fmt.Println(invoices.Add(ctx, 40))

		node, err := c.Get(ctx, "/counters/invoices") // what an operator sees
		fmt.Println(string(node.Data), err)
	})
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 42 <nil>
	// 42 <nil>
}

func ExampleCounter_CompareAndSet() {
	withClient(func(ctx context.Context, c *client.Client) {
		level := counter.New(c, "/level")
		fmt.Println(level.CompareAndSet(ctx, 0, 3))
		fmt.Println(level.CompareAndSet(ctx, 0, 4))
		fmt.Println(level.Get(ctx))
	})
	// Output:
	// true <nil>
	// false <nil>
	// 3 <nil>
}
