package pgtest

import (
	"context"
	"sync"

	"github.com/coordd/coord/internal/tempserver"
)

// Get returns a server that is closed when the test ends. Where the machine has
// no PostgreSQL it skips the test with the reason, except in CI (CI=true) and
// where tempserver.EnvRequire is 1: there a test that did not run is a failure.
func Get(t tempserver.TB, o Options) *Server {
	t.Helper()
	s, err := Start(context.Background(), o)
	if !tempserver.Usable(t, err) {
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
func (s *Shared) Get(t tempserver.TB) *Server {
	t.Helper()
	s.once.Do(func() { s.server, s.err = Start(context.Background(), Options{}) })
	if !tempserver.Usable(t, s.err) {
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
