package pgtest

import (
	"context"

	"github.com/coordd/coord/internal/tempserver"
)

// Get returns a server that is closed when the test ends. Where the machine has
// no PostgreSQL it skips the test with the reason, except in CI (CI=true) and
// where tempserver.EnvRequire is 1: there a test that did not run is a failure.
func Get(t tempserver.TB, o Options) *Server {
	t.Helper()
	return tempserver.Get(t, "pgtest", func() (*Server, error) { return Start(context.Background(), o) })
}

// Shared is one server for all tests of a package, started by the first that
// asks. The zero Shared is ready; TestMain closes it.
type Shared struct{ shared tempserver.Shared[*Server] }

// Get returns the server, and skips or fails as the function [Get] does.
func (s *Shared) Get(t tempserver.TB) *Server {
	t.Helper()
	return s.shared.Get(t, func() (*Server, error) { return Start(context.Background(), Options{}) })
}

// Close stops the server if one was started; no Get may follow.
func (s *Shared) Close() error { return s.shared.Close() }
