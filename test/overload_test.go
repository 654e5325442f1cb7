package test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

const (
	// floodTime is how long a flood lasts, floodSessions how many sessions one
	// client floods with, floodDepth how many requests each of them has in flight.
	floodTime     = 12 * time.Second
	floodSessions = 10
	floodDepth    = 1000
	// floodTimeout is the session timeout of those who suffer: far shorter than
	// the flood.
	floodTimeout = 6 * time.Second
	// floodHandover bounds one round of lock and release meanwhile. On an idle
	// machine it is some tens of milliseconds; it must never come near the time
	// that the flood's own requests wait.
	floodHandover = 12 * time.Second
)

// flood keeps requests in flight from a client's own sessions until ctx ends.
// request makes one of them; it may fail when ctx has ended, and for overload.
func flood(ctx context.Context, t *testing.T, c *processes, request func(ctx context.Context, cl *client.Client, i int) error) (wait func() (done int64)) {
	t.Helper()
	cl := dial(t, c.endpoints())
	var sessions []*client.Session
	for range floodSessions { // all before the first request: a flood holds up itself
		s, err := cl.NewSession(t.Context(), client.WithSessionTimeout(60*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	var wg sync.WaitGroup
	var done atomic.Int64
	for _, s := range sessions {
		for i := range floodDepth {
			wg.Go(func() {
				for ctx.Err() == nil {
					err := request(ctx, s.Client(), i)
					switch {
					case err == nil:
						done.Add(1)
					case ctx.Err() == nil && !errors.Is(err, client.ErrOverloaded):
						t.Errorf("a request of the flood: %v", err)
						return
					}
				}
			})
		}
	}
	return func() int64 { wg.Wait(); return done.Load() }
}

// lockAndRelease takes and gives back a lock again and again until ctx ends and
// returns how long the longest round took, and how many there were.
func lockAndRelease(ctx context.Context, t *testing.T, cl *client.Client, path string) (longest time.Duration, rounds int) {
	m := lock.New(cl, path)
	for ctx.Err() == nil {
		begin := time.Now()
		h, err := m.Acquire(context.WithoutCancel(ctx))
		if err != nil {
			t.Errorf("lock: %v", err)
			return longest, rounds
		}
		if err := h.Release(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("release: %v", err)
			return longest, rounds
		}
		longest, rounds = max(longest, time.Since(begin)), rounds+1
	}
	return longest, rounds
}

// TestFloodOfOneClientLeavesOthersTheirSessionsAndLocks: whatever one client sends,
// and at whichever server.
func TestFloodOfOneClientLeavesOthersTheirSessionsAndLocks(t *testing.T) {
	skipIfShort(t)
	big := make([]byte, 1<<20-1024)
	for name, f := range map[string]struct {
		prepare func(ctx context.Context, cl *client.Client) error
		request func(ctx context.Context, cl *client.Client, i int) error
	}{
		"large values": {
			prepare: func(ctx context.Context, cl *client.Client) error { return createAll(ctx, cl, "/flood", 32) },
			request: func(ctx context.Context, cl *client.Client, i int) error {
				_, err := cl.Set(ctx, fmt.Sprintf("/flood/%d", i%32), big, client.AnyVersion)
				return err
			},
		},
		"small values": {
			prepare: func(ctx context.Context, cl *client.Client) error { return createAll(ctx, cl, "/flood", 32) },
			request: func(ctx context.Context, cl *client.Client, i int) error {
				_, err := cl.Set(ctx, fmt.Sprintf("/flood/%d", i%32), []byte("x"), client.AnyVersion)
				return err
			},
		},
		"long listings": {
			prepare: func(ctx context.Context, cl *client.Client) error { return createAll(ctx, cl, "/flood", 20_000) },
			request: func(ctx context.Context, cl *client.Client, _ int) error {
				_, err := cl.Children(ctx, "/flood")
				return err
			},
		},
		"watches": {
			prepare: func(ctx context.Context, cl *client.Client) error { return createAll(ctx, cl, "/flood", 32) },
			request: func(ctx context.Context, cl *client.Client, i int) error {
				path := fmt.Sprintf("/flood/%d", i%32)
				if i < 400 { // 4,000 watches, each of which is set anew when it has fired
					for _, err := range cl.Watch(ctx, path) {
						return err
					}
				}
				_, err := cl.Set(ctx, path, nil, client.AnyVersion)
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := startProcesses(t, 3, "")
			if err := f.prepare(t.Context(), dial(t, c.endpoints())); err != nil {
				t.Fatal(err)
			}
			var victims []*client.Client
			for _, p := range c.nodes { // one at each server
				victims = append(victims, dial(t, []string{p.grpc()}, client.WithSessionTimeout(floodTimeout)))
			}
			ctx, cancel := context.WithTimeout(context.Background(), floodTime)
			defer cancel()
			wait := flood(ctx, t, c, f.request)
			var wg sync.WaitGroup
			for i, v := range victims {
				wg.Go(func() {
					longest, rounds := lockAndRelease(ctx, t, v, fmt.Sprintf("/lock-%d", i))
					t.Logf("the lock at %s: %d rounds, the longest %v", c.nodes[i].name, rounds, longest)
					if longest > floodHandover {
						t.Errorf("one round took %v, at most %v is right", longest, floodHandover)
					}
				})
			}
			wg.Wait()
			t.Logf("the flood had %d answers", wait())
			for i, v := range victims {
				if err := v.Session().Context().Err(); err != nil {
					t.Errorf("the session at %s ended: %v", c.nodes[i].name, context.Cause(v.Session().Context()))
				}
			}
		})
	}
}

// createAll makes a folder with n children.
func createAll(ctx context.Context, cl *client.Client, folder string, n int) error {
	if _, err := cl.Create(ctx, folder, nil); err != nil {
		return err
	}
	errs := make(chan error, n)
	each(n, func(i int) {
		_, err := cl.Create(ctx, fmt.Sprintf("%s/%d", folder, i), nil)
		errs <- err
	})
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
