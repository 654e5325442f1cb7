// Package rig is what the recipes' own tests stand on: clients of a cluster in
// memory, in fake time, and random choices that can be made again. No recipe
// imports it.
package rig

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
)

// Fake runs f in fake time with a cluster of n servers.
func Fake(t *testing.T, n int, f func(t *testing.T, c *fakecoord.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, fakecoord.New(t, n)) })
}

// Times is n, or with -short a quarter of it: how often something is done, or how
// many take part, where a few show the same and many make sure.
func Times(n int) int {
	if testing.Short() {
		return n / 4
	}
	return n
}

// Connect returns a client that ends with the test.
func Connect(t *testing.T, c *fakecoord.Cluster, opts ...client.Option) *client.Client {
	t.Helper()
	cl, err := Dial(t.Context(), c, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close() })
	return cl
}

// Dial is Connect for goroutines, and for clients that end before the test does.
// The client's clock is the fake one.
func Dial(ctx context.Context, c *fakecoord.Cluster, opts ...client.Option) (*client.Client, error) {
	began := time.Now()
	return client.Dial(ctx, c.Target(), append([]client.Option{
		client.WithGRPCOptions(c.DialOption()), client.WithLogger(slog.New(slog.DiscardHandler)),
		client.WithClock(func() time.Duration { return time.Since(began) + time.Hour }),
	}, opts...)...)
}

// Rand is a source of the choices that a seed stands for.
func Rand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }
