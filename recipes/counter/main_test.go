package counter

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/recipes/internal/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	fake    = rig.Fake
	connect = rig.Connect
	random  = seed.Rand
)

func wantValue(t *testing.T, c *Counter, want int64) {
	t.Helper()
	if got, err := c.Get(t.Context()); err != nil || got != want {
		t.Fatalf("the counter is %d (%v), want %d", got, err, want)
	}
}
