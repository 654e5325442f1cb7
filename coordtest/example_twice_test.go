package coordtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/coordtest"
)

// Second example: a retry does the work twice.
//
// A web shop puts each order into a queue of znodes. The test loses the reply to
// the write and counts what is in the queue.

// orderTwice has the mistake: an error does not say that nothing was done.
func orderTwice(ctx context.Context, c *client.Client, id string) error {
	var err error
	for range 3 {
		_, err = c.Create(ctx, "/orders/order-", []byte(id), client.WithSequential())
		if err == nil {
			return nil
		}
	}
	return err
}

// orderOnce gives the request an id, so that the cluster knows a repeat.
func orderOnce(ctx context.Context, c *client.Client, id string) error {
	ctx = client.WithRequestID(ctx, "order "+id)
	var err error
	for range 3 {
		_, err = c.Create(ctx, "/orders/order-", []byte(id), client.WithSequential())
		if !errors.Is(err, client.ErrUnknownOutcome) {
			return err
		}
	}
	return err
}

type order func(ctx context.Context, c *client.Client, id string) error

// lostReply is the test that one would write: it returns what is wrong.
func lostReply(t *testing.T, place order) error {
	c := coordtest.Start(t)
	shop := c.Dial(client.WithoutSession()) // with a session the client asks again by itself
	if _, err := shop.Create(t.Context(), "/orders", nil); err != nil {
		return err
	}
	c.DropReply(shop)
	if err := place(t.Context(), shop, "41"); err != nil {
		return err
	}
	if orders := c.Paths("/orders/"); len(orders) != 1 {
		return fmt.Errorf("one order was placed, and there are %q", orders)
	}
	return nil
}

func TestExampleOfARetryThatDoesItTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := lostReply(t, orderTwice); err == nil || !strings.Contains(err.Error(), "one order was placed") {
			t.Errorf("the mistake is not found: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		if err := lostReply(t, orderOnce); err != nil {
			t.Error(err)
		}
	})
}
