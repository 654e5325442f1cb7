package coordtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/coordtest"
)

// Third example: an old znode is taken for one's own.
//
// The host whose name stands in an ephemeral znode leads. The test lets the leader
// crash and come back at once, while its former session still lives.

// leadByName has the mistake: the znode with its name may be one of its former
// session, and goes with that.
func leadByName(ctx context.Context, c *client.Client, host string) (bool, error) {
	_, err := c.Create(ctx, "/leader", []byte(host), client.WithEphemeral())
	if !errors.Is(err, client.ErrNodeExists) {
		return err == nil, err
	}
	n, err := c.Get(ctx, "/leader")
	if errors.Is(err, client.ErrNoNode) {
		return false, nil
	}
	return string(n.Data) == host, err
}

// leadBySession leads only if the znode belongs to its present session.
func leadBySession(ctx context.Context, c *client.Client, host string) (bool, error) {
	_, err := c.Create(ctx, "/leader", []byte(host), client.WithEphemeral())
	if !errors.Is(err, client.ErrNodeExists) {
		return err == nil, err
	}
	n, err := c.Get(ctx, "/leader")
	if errors.Is(err, client.ErrNoNode) {
		return false, nil
	}
	return n.Stat.EphemeralOwner == c.Session().ID(), err
}

type lead func(ctx context.Context, c *client.Client, host string) (bool, error)

// crashedLeader is the test that one would write: it returns what is wrong.
func crashedLeader(t *testing.T, campaign lead) error {
	c := coordtest.Start(t)
	before := c.Dial()
	if leads, err := campaign(t.Context(), before, "a"); !leads {
		return fmt.Errorf("nobody leads: %w", err)
	}
	c.Partition(before) // it crashes: nobody says goodbye
	again := c.Dial()   // and is started again
	resumed, err := campaign(t.Context(), again, "a")
	if err != nil {
		return err
	}
	time.Sleep(before.Session().Timeout() * 2)
	other, err := campaign(t.Context(), c.Dial(), "b")
	if err != nil {
		return err
	}
	if resumed && other {
		return errors.New("a and b lead at the same time, and nobody has told a")
	}
	return nil
}

func TestExampleOfAnOldZnodeTakenForOnesOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := crashedLeader(t, leadByName); err == nil || !strings.Contains(err.Error(), "a and b lead at the same time") {
			t.Errorf("the mistake is not found: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		if err := crashedLeader(t, leadBySession); err != nil {
			t.Error(err)
		}
	})
}
