package once

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/fence"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

// fake runs f in fake time with a cluster of n servers.
func fake(t *testing.T, n int, f func(t *testing.T, c *fakecoord.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, fakecoord.New(t, n)) })
}

func connect(t *testing.T, c *fakecoord.Cluster, opts ...client.Option) *client.Client {
	t.Helper()
	began := time.Now()
	opts = append([]client.Option{
		client.WithSessionTimeout(5 * time.Minute), // few heartbeats, for tests of many hours
		client.WithGRPCOptions(c.DialOption()), client.WithLogger(slog.New(slog.DiscardHandler)),
		client.WithClock(func() time.Duration { return time.Since(began) + time.Hour }),
	}, opts...)
	cl, err := client.Dial(t.Context(), c.Target(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close() })
	return cl
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
