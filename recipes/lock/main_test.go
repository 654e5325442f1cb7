package lock

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/coordd/coord/recipes/internal/rig"
)

// TestMain looks, at the end of all, for what has outlived its lock and its
// client.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	fake    = rig.Fake
	connect = rig.Connect
)
