package queue_test

import (
	"context"
	"fmt"
	"log"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/localcluster"
	"github.com/coordd/coord/recipes/queue"
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

func ExampleQueue() {
	withClient(func(ctx context.Context, c *client.Client) error {
		orders := queue.New(c, "/queues/orders")
		for _, key := range []string{"order-41", "order-42", "order-41"} { // the last one is a repeat
			if _, err := orders.Put(ctx, []byte("ship "+key), queue.Key(key)); err != nil {
				return err
			}
		}
		if _, err := orders.Put(ctx, []byte("urgent"), queue.Priority(-1)); err != nil {
			return err
		}
		for range 3 {
			it, err := orders.Take(ctx)
			if err != nil {
				return err
			}
			fmt.Printf("%s %q\n", it.Data, it.Key) // it.Context() ends if the claim is lost
			if err := it.Done(ctx); err != nil {
				return err
			}
		}
		fmt.Println(orders.Len(ctx))
		return nil
	})
	// Output:
	// urgent ""
	// ship order-41 "order-41"
	// ship order-42 "order-42"
	// 0 <nil>
}

// A worker that dies gives its item back; the next one sees that.
func ExampleItem() {
	withClient(func(ctx context.Context, c *client.Client) error {
		orders := queue.New(c, "/queues/orders")
		if _, err := orders.Put(ctx, []byte("ship")); err != nil {
			return err
		}
		session, err := c.NewSession(ctx)
		if err != nil {
			return err
		}
		first, err := queue.New(c, "/queues/orders", queue.WithSession(session)).Take(ctx)
		if err != nil {
			return err
		}
		if err := session.Close(ctx); err != nil { // it dies
			return err
		}
		second, err := orders.Take(ctx)
		if err != nil {
			return err
		}
		fmt.Println(second.Deliveries, second.Token > first.Token)
		fmt.Println(first.Context().Err(), first.Done(ctx) != nil)
		return second.Done(ctx)
	})
	// Output:
	// 2 true
	// context canceled true
}
