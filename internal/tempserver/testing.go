package tempserver

import (
	"errors"
	"os"
)

// EnvRequire is the environment variable that, set to 1, makes [Usable] fail a
// test where it would skip it.
const EnvRequire = "COORD_TEST_REQUIRE"

// ErrNotInstalled is matched by the error for a server that the machine does not
// have.
var ErrNotInstalled = errors.New("not installed")

// TB is what is needed of a *testing.T, *testing.B or *testing.F. It is declared
// here so that programs do not link package testing.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Usable turns the error of starting a server into the fate of the test. Where
// the server is not installed the test is skipped with the reason, except in CI
// (CI=true) and where [EnvRequire] is 1: there a test that did not run is a
// failure.
func Usable(t TB, err error) bool {
	t.Helper()
	switch {
	case err == nil:
		return true
	case errors.Is(err, ErrNotInstalled) && !required():
		t.Skipf("needs a real database: %v", err)
	default:
		t.Fatalf("%v", err)
	}
	return false
}

func required() bool {
	return os.Getenv("CI") == "true" || os.Getenv(EnvRequire) == "1"
}
