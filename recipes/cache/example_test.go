package cache_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/localcluster"
	"github.com/coordd/coord/recipes/cache"
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

func ExampleCache() {
	withClient(func(ctx context.Context, c *client.Client) error {
		if _, err := c.Create(ctx, "/config", nil); err != nil {
			return err
		}
		config := cache.New(c, "/config", cache.OnChange(func(ch cache.Change) {
			fmt.Printf("%s %s %q\n", ch.Type, ch.Node.Path, ch.Node.Data)
		}))
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- config.Run(ctx) }()
		if err := config.WaitSynced(ctx); err != nil {
			return err
		}
		created, err := c.Create(ctx, "/config/limit", []byte("42"))
		if err != nil {
			return err
		}
		if err := config.WaitZxid(ctx, created.Stat.Czxid); err != nil { // to read one's own write
			return err
		}
		limit, ok := config.Get("/config/limit") // costs no request
		fmt.Println(string(limit.Data), ok, config.Children("/config"), config.Stale())
		cancel()
		fmt.Println("Run ends with its context:", errors.Is(<-ended, context.Canceled))
		return nil
	})
	// Output:
	// created /config ""
	// created /config/limit "42"
	// 42 true [limit] 0s
	// Run ends with its context: true
}
