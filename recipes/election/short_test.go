package election

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/coordtest"
	"github.com/coordd/coord/fence"
)

// TestShortLeadershipsAreSeenWhole on a real server, with value and token, also by
// an observer that hears of them when they are over.
func TestShortLeadershipsAreSeenWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const terms = 20
		c := coordtest.Start(t)
		ctx, cancel := context.WithCancel(t.Context())
		eye := c.Dial()
		seen := make(chan Leader, 3*terms)
		go func() {
			defer close(seen)
			for l, err := range New(eye, "/e").Observe(ctx) {
				if err != nil {
					return
				}
				seen <- l
			}
		}()
		time.Sleep(time.Second)
		e := New(c.Dial(), "/e")
		var led []fence.Token
		for i := range terms {
			if i == terms/2 {
				heal := c.Partition(eye)
				c.Break(eye)
				time.AfterFunc(2*time.Second, heal)
			}
			l, err := e.Campaign(t.Context(), []byte{byte(i)})
			if err != nil {
				t.Fatal(err)
			}
			led = append(led, l.FencingToken())
			if err := l.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		cancel()
		n := 0
		for l := range seen {
			if l.None() {
				continue
			}
			if n == terms || l.Token != led[n] || len(l.Value) != 1 || l.Value[0] != byte(n) || l.Missed {
				t.Fatalf("leader %d is seen as %+v", n, l)
			}
			n++
		}
		if n != terms {
			t.Errorf("%d leaders were seen, of %d", n, terms)
		}
		if _, err := e.Leader(t.Context()); !errors.Is(err, ErrNoLeader) {
			t.Error(err)
		}
	})
}
