package once

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/internal/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var fake = rig.Fake

// connect gives sessions a timeout with few heartbeats, for tests of many hours.
func connect(t *testing.T, c *fakecoord.Cluster, opts ...client.Option) *client.Client {
	t.Helper()
	return rig.Connect(t, c, append([]client.Option{client.WithSessionTimeout(5 * time.Minute)}, opts...)...)
}

// store is a database in memory: one transaction at a time, with the check of the
// token and the memory of operations that sqlfence.Once has.
type store struct {
	mu      sync.Mutex
	gate    fence.Gate
	results map[string]fence.Token // of operations that were applied: by which token
	applied map[string]int         // how often
}

// once applies an operation, unless it was applied before or the token is stale.
// crash is asked before the commit.
func (s *store) once(key string, token fence.Token, crash func() bool) (repeated bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.results[key]; ok {
		return true, nil
	}
	if err := s.gate.Admit(context.Background(), "resource", token); err != nil {
		return false, err
	}
	if crash() {
		return false, errCrash // rolled back
	}
	if s.results == nil {
		s.results, s.applied = map[string]fence.Token{}, map[string]int{}
	}
	s.results[key] = token
	s.applied[key]++
	return false, nil
}

var errCrash = errors.New("crashed")

func do(t *testing.T, j *Job, period string, fn func(ctx context.Context, turn Turn) error) Done {
	t.Helper()
	d, err := j.Do(t.Context(), period, fn)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func nothing(context.Context, Turn) error { return nil }
