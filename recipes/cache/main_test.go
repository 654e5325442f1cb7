package cache

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
	newRand = rig.Rand
	random  = seed.Rand
)
