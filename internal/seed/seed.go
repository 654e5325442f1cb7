// Package seed gives tests with chance in them their seed, in one way: each prints
// the seed that it draws, and COORD_SEED makes it take that one again. Only tests
// import it. Its functions may be called from any goroutine of a test that may end
// the test.
//
// Chance chooses what is done. Where real processes or the order of goroutines take
// part, they choose too, and a seed repeats a run only roughly. All tests of a run
// may share one seed: they do different things with it.
package seed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// variable is the environment variable with the seed to take.
const variable = "COORD_SEED"

// New returns the seed of t: COORD_SEED, or a new one. It is shown if t fails, or
// with -v. A test asks once and derives from the seed what else it needs, so that
// one number repeats all of it.
func New(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64() >> 24 // enough to be another one each time, and short to copy
	if text := os.Getenv(variable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 0, 64); err != nil {
			t.Fatalf("%s is no seed: %v", variable, err)
		}
	}
	t.Logf("repeat with %s=%d", variable, seed)
	return seed
}

// Rand returns a source of random numbers that starts from the seed of t.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(New(t), 1))
}
