package client

import (
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client/fakecoord"
)

// TestRefusedCallComesAgainWhenItWasTold: not before, and not much later.
func TestRefusedCallComesAgainWhenItWasTold(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		const told = 4 * time.Second
		for _, name := range []string{"n1", "n2"} {
			c.Server(name).Refuse(&coordpb.Error{Code: coordpb.Code_CODE_OVERLOADED, RetryAfterMs: told.Milliseconds()})
		}
		began := time.Now()
		time.AfterFunc(time.Second, func() {
			c.Server("n1").Refuse(nil)
			c.Server("n2").Refuse(nil)
		})
		connect(t, c)
		if took := time.Since(began); took < told || took > 2*told {
			t.Errorf("let in after %v; it was told to come again after %v", took, told)
		}
	})
}

// TestThoseRefusedTogetherDoNotComeBackTogether: the pauses of many are spread.
func TestThoseRefusedTogetherDoNotComeBackTogether(t *testing.T) {
	e := &coordpb.Error{Code: coordpb.Code_CODE_OVERLOADED, RetryAfterMs: 1000}
	var quarters [4]int
	for range 1000 {
		d := asTold(e, retryPause)
		if d < time.Second || d > 1500*time.Millisecond {
			t.Fatalf("a pause of %v for one of 1 s", d)
		}
		quarters[min(3, (d-time.Second)/(125*time.Millisecond))]++
	}
	for _, n := range quarters {
		if n < 150 {
			t.Errorf("in the quarters of the spread come %v of 1000", quarters)
			break
		}
	}
	if d := asTold(nil, time.Second); d != time.Second {
		t.Errorf("who was told nothing waits %v instead of his own second", d)
	}
	e.RetryAfterMs = time.Hour.Milliseconds()
	if d := asTold(e, retryPause); d > 2*maxPatience {
		t.Errorf("a server makes its client wait for %v", d)
	}
}
