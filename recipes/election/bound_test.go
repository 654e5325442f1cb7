package election_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/coordtest"
	"github.com/coordd/coord/recipes/election"
	"github.com/coordd/coord/recipes/lock"
)

// slack is what a real cluster may need beyond a session's timeout until the next
// one leads.
const slack = 2 * time.Second

// TestGapAfterADeadLeaderIsBounded on real servers: the leader vanishes, or is cut
// off, and the next one leads within the session's timeout and the slack; with a
// lock-delay that much later and not before. The one cut off has stopped by then.
func TestGapAfterADeadLeaderIsBounded(t *testing.T) {
	for name, delay := range map[string]time.Duration{"plain": 0, "lock-delay": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const timeout = 4 * time.Second
				c := coordtest.StartCluster(t, 3)
				opts := []lock.Option{lock.LockDelay(delay)}
				first, second := c.Dial(client.WithSessionTimeout(timeout)), c.Dial(client.WithSessionTimeout(timeout))
				old, err := election.New(first, "/e", opts...).Campaign(t.Context(), []byte("old"))
				if err != nil {
					t.Fatal(err)
				}
				led := make(chan *election.Leadership, 1)
				go func() {
					if l, err := election.New(second, "/e", opts...).Campaign(t.Context(), []byte("new")); err == nil {
						led <- l
					}
				}()
				seen := make(chan election.Leader, 100)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				observer := c.Dial(client.WithoutSession())
				go func() {
					for l, err := range election.New(observer, "/e").Observe(ctx) {
						if err != nil {
							return
						}
						seen <- l
					}
				}()
				if l := <-seen; string(l.Value) != "old" {
					t.Fatalf("observed %+v", l)
				}
				time.Sleep(10 * time.Second)
				heal := c.Partition(first)
				began := time.Now()
				if l := <-seen; !l.None() {
					t.Fatalf("observed %+v", l)
				}
				gone := time.Since(began)
				fresh := <-led
				took := time.Since(began)
				if old.Held() || old.Context().Err() == nil || fresh.FencingToken() <= old.FencingToken() {
					t.Fatal("two lead")
				}
				if gone > timeout+slack || took > timeout+delay+slack || took < delay {
					t.Fatalf("gone after %s, the next leads after %s", gone, took)
				}
				if l := <-seen; string(l.Value) != "new" || l.Token != fresh.FencingToken() {
					t.Fatalf("observed %+v", l)
				}
				heal()
				if err := fresh.Resign(t.Context()); err != nil {
					t.Fatal(err)
				}
				if l := <-seen; !l.None() {
					t.Fatalf("observed %+v", l)
				}
			})
		})
	}
}
