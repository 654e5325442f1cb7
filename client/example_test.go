package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/localcluster"
)

// withCluster runs f with the address of a server of its own.
func withCluster(f func(ctx context.Context, servers string)) {
	ctx := context.Background()
	lc, err := localcluster.Start(ctx, localcluster.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = lc.Close() }()
	f(ctx, lc.Target())
}

func ExampleDial() {
	withCluster(func(ctx context.Context, servers string) {
		c, err := client.Dial(ctx, servers, client.WithSessionName("example"))
		if err != nil {
			fmt.Println(err) // lists each server and what came back
			return
		}
		defer func() { _ = c.Close() }() // ends the session: its ephemeral nodes go now

		if _, err = c.Create(ctx, "/config", []byte("a=1")); err != nil {
			fmt.Println(err)
			return
		}
		node, err := c.Get(ctx, "/config")
		fmt.Println(string(node.Data), node.Stat.Version, err)

		_, err = c.Set(ctx, "/config", []byte("a=2"), node.Stat.Version+1)
		fmt.Println(err, errors.Is(err, client.ErrBadVersion))
	})
	// Output:
	// a=1 0 <nil>
	// set /config: version is 0, you said 1 true
}

func ExampleClient_Watch() {
	withCluster(func(ctx context.Context, servers string) {
		c, err := client.Dial(ctx, servers)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() { _ = c.Close() }()
		for ev, err := range c.Watch(ctx, "/members", client.Recursive(), client.Initial(client.Linearizable)) {
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println(ev.Type, ev.Path)
			switch {
			case ev.Type == client.EventAbsent: // the watch stands: nothing after this is missed
				_, err = c.Txn(ctx, client.OpCreate("/members", nil), client.OpCreate("/members/b7", nil, client.WithEphemeral()))
			case ev.Path == "/members/b7":
				return // leaving the loop ends the watch
			}
			if err != nil {
				fmt.Println(err)
				return
			}
		}
	})
	// Output:
	// absent /members
	// created /members
	// created /members/b7
}

func ExampleWithRequestID() {
	withCluster(func(ctx context.Context, servers string) {
		c, err := client.Dial(ctx, servers, client.WithoutSession())
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() { _ = c.Close() }()
		ctx = client.WithRequestID(ctx, "order-41")
		for range 2 { // as a script would, whose first attempt timed out
			order, err := c.Create(ctx, "/order-", nil, client.WithSequential())
			fmt.Println(order.Path, err)
		}
	})
	// Output:
	// /order-0000000000 <nil>
	// /order-0000000000 <nil>
}
