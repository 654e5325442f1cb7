package test

import (
	"context"
	"testing"
	"time"

	"github.com/coordd/coord/recipes/barrier"
)

// curator#1290: members of a double barrier went through too early when a
// connection was lost or came back. Five members whose connections are cut again and
// again while four wait for the fifth.
func TestNobodyPassesABarrierBeforeAllAreThere(t *testing.T) {
	c := startLocal(t, 3, nil)
	ctx := testContext(t, time.Minute)
	px, addresses := proxies(t, c.Endpoints())
	const members = 5
	b := func() *barrier.Double { return barrier.NewDouble(dial(t, addresses, quiet), "/barrier", members) }
	type passed struct {
		leave func(context.Context) error
		err   error
	}
	for range 3 {
		in, out := make(chan passed, members), make(chan error, members)
		enter := func(d *barrier.Double) {
			leave, err := d.Enter(ctx)
			in <- passed{leave, err}
		}
		for range members - 1 {
			go enter(b())
		}
		none := func(what string, n int) {
			t.Helper()
			if n != 0 {
				t.Errorf("%d %s before all were there", n, what)
			}
		}
		bounceConnections(px, func() { none("entered", len(in)) })
		go enter(b())
		var leaves []func(context.Context) error
		for range members {
			p := <-in
			if p.err != nil {
				t.Fatal(p.err)
			}
			leaves = append(leaves, p.leave)
		}
		for _, leave := range leaves[1:] {
			go func() { out <- leave(ctx) }()
		}
		bounceConnections(px, func() { none("left", len(out)) })
		if err := leaves[0](ctx); err != nil {
			t.Error(err)
		}
		for range members - 1 {
			if err := <-out; err != nil {
				t.Error(err)
			}
		}
	}
	queueLength(ctx, t, dial(t, c.Endpoints()), "/barrier", 0)
}

// bounceConnections cuts all connections 20 times and lets them come back, and
// calls f each time.
func bounceConnections(px []*proxy, f func()) {
	for i := range 20 {
		for _, p := range px {
			p.refuse.Store(i%4 == 3) // now and then no server is there for a moment
			p.cut()
		}
		time.Sleep(25 * time.Millisecond) // the disturbance itself
		for _, p := range px {
			p.refuse.Store(false)
		}
		f()
	}
}
