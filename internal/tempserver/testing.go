package tempserver

import (
	"errors"
	"os"
	"sync"
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

// server is what this package keeps for tests: a pointer to a running server.
type server interface {
	comparable
	Close() error
}

// Get returns what start has started; it is closed when the test ends. Where it
// cannot be started the test is skipped or fails, as [Usable] decides, and Get
// returns the zero value. name stands in the report of a failed close.
func Get[S server](t TB, name string, start func() (S, error)) S {
	t.Helper()
	s, err := start()
	if !Usable(t, err) {
		return *new(S)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	})
	return s
}

// Shared is one server for all tests of a package, started by the first that
// asks. The zero Shared is ready; TestMain closes it.
type Shared[S server] struct {
	once   sync.Once
	server S
	err    error
}

// Get returns the server, and skips or fails as the function [Get] does.
func (s *Shared[S]) Get(t TB, start func() (S, error)) S {
	t.Helper()
	s.once.Do(func() { s.server, s.err = start() })
	if !Usable(t, s.err) {
		return *new(S)
	}
	return s.server
}

// Close stops the server if one was started; no Get may follow.
func (s *Shared[S]) Close() error {
	s.once.Do(func() {})
	if s.server == *new(S) {
		return nil
	}
	return s.server.Close()
}
