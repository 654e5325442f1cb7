package pgtest

import (
	"context"
	"errors"
	"os"
)

// EnvRequire is the environment variable that, set to 1, makes [Get] fail where
// it would skip.
const EnvRequire = "COORD_TEST_REQUIRE"

// TB is what Get needs of a *testing.T, *testing.B or *testing.F. It is declared
// here so that programs that use Start do not link package testing.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Get returns a server that is closed when the test ends. Where the machine has
// no PostgreSQL it skips the test with the reason, except in CI (CI=true) and
// where [EnvRequire] is 1: there a test that did not run is a failure.
func Get(t TB, o Options) *Server {
	t.Helper()
	s, err := Start(context.Background(), o)
	switch {
	case err == nil:
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Errorf("pgtest: close: %v", err)
			}
		})
	case errors.Is(err, ErrNotInstalled) && !required():
		t.Skipf("needs a real PostgreSQL: %v", err)
	default:
		t.Fatalf("%v", err)
	}
	return s
}

func required() bool {
	return os.Getenv("CI") == "true" || os.Getenv(EnvRequire) == "1"
}
