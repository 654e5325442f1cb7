package pgtest

import (
	"context"
	"errors"
	"os"
	"sync"
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
	if !usable(t, err) {
		return nil
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("pgtest: close: %v", err)
		}
	})
	return s
}

// Shared is one server for all tests of a package, started by the first that
// asks. The zero Shared is ready; TestMain closes it.
type Shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Get returns the server, and skips or fails as the function [Get] does.
func (s *Shared) Get(t TB) *Server {
	t.Helper()
	s.once.Do(func() { s.server, s.err = Start(context.Background(), Options{}) })
	if !usable(t, s.err) {
		return nil
	}
	return s.server
}

// Close stops the server if one was started; no Get may follow.
func (s *Shared) Close() error {
	s.once.Do(func() {})
	if s.server == nil {
		return nil
	}
	return s.server.Close()
}

// usable turns the error of Start into the fate of the test.
func usable(t TB, err error) bool {
	t.Helper()
	switch {
	case err == nil:
		return true
	case errors.Is(err, ErrNotInstalled) && !required():
		t.Skipf("needs a real PostgreSQL: %v", err)
	default:
		t.Fatalf("%v", err)
	}
	return false
}

func required() bool {
	return os.Getenv("CI") == "true" || os.Getenv(EnvRequire) == "1"
}
