package once

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
)

// running is one Run in a goroutine of its own.
type running struct {
	cancel context.CancelFunc
	done   chan error
}

func run(t *testing.T, j *Job, s Schedule, fn func(ctx context.Context, turn Turn) error) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{cancel, make(chan error, 1)}
	go func() { r.done <- j.Run(ctx, s, fn) }()
	t.Cleanup(cancel)
	return r
}

func (r *running) stop(t *testing.T) error {
	t.Helper()
	r.cancel()
	select {
	case err := <-r.done:
		return err
	case <-time.After(5 * time.Minute):
		t.Fatal("Run does not return")
		return nil
	}
}

// log collects the periods that were run.
type log struct {
	mu   sync.Mutex
	runs []string
}

func (l *log) fn(_ context.Context, turn Turn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs = append(l.runs, turn.Period)
	return nil
}

func (l *log) want(t *testing.T, periods ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.runs, periods) {
		t.Fatalf("ran %v, want %v", l.runs, periods)
	}
}

// Fake time begins at midnight UTC of 2000-01-01.

func TestHostsShareTheHours(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		var l log
		var runs []*running
		for range 4 {
			runs = append(runs, run(t, New(connect(t, c), "/j"), Every(time.Hour), l.fn))
		}
		time.Sleep(3*time.Hour + time.Minute)
		l.want(t, "2000-01-01T00:00:00Z", "2000-01-01T01:00:00Z", "2000-01-01T02:00:00Z", "2000-01-01T03:00:00Z")
		for _, r := range runs {
			if err := r.stop(t); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
	})
}

// TestMissedPeriodIsMadeUpFor: no host was there when it began.
func TestMissedPeriodIsMadeUpFor(t *testing.T) {
	for n, want := range map[int][]string{
		0: {"2000-01-01T06:00:00Z"},
		1: {"2000-01-01T05:00:00Z", "2000-01-01T06:00:00Z"},
		3: {"2000-01-01T03:00:00Z", "2000-01-01T04:00:00Z", "2000-01-01T05:00:00Z", "2000-01-01T06:00:00Z"},
		9: {
			"1999-12-31T21:00:00Z", "1999-12-31T22:00:00Z", "1999-12-31T23:00:00Z", "2000-01-01T01:00:00Z", "2000-01-01T02:00:00Z",
			"2000-01-01T03:00:00Z", "2000-01-01T04:00:00Z", "2000-01-01T05:00:00Z", "2000-01-01T06:00:00Z",
		},
	} {
		fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
			cl := connect(t, c)
			do(t, New(cl, "/j"), "2000-01-01T00:00:00Z", nothing)
			time.Sleep(5*time.Hour + 30*time.Minute)
			var l log
			r := run(t, New(cl, "/j", CatchUp(n)), Every(time.Hour), l.fn)
			time.Sleep(time.Hour)
			l.want(t, want...)
			_ = r.stop(t)
		})
	}
}

// TestNewJobBeginsWithTheNewestPeriod, whatever CatchUp says.
func TestNewJobBeginsWithTheNewestPeriod(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		var l log
		time.Sleep(10 * time.Hour)
		r := run(t, New(connect(t, c), "/j", CatchUp(5)), Every(time.Hour), l.fn)
		time.Sleep(time.Minute)
		l.want(t, "2000-01-01T10:00:00Z")
		_ = r.stop(t)
	})
}

// TestHostWhoseClockIsBehindFindsTheMarker, also when that is not kept any more.
func TestHostWhoseClockIsBehindFindsTheMarker(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		var l log
		hour := Every(time.Hour)
		behind := func(by time.Duration) Schedule {
			return func(now time.Time) (string, time.Time) {
				p, next := hour(now.Add(-by))
				return p, next.Add(by)
			}
		}
		a := run(t, New(connect(t, c), "/j", Keep(3)), hour, l.fn)
		b := run(t, New(connect(t, c), "/j", Keep(3)), behind(90*time.Minute), l.fn)
		d := run(t, New(connect(t, c), "/j", Keep(3)), behind(9*time.Hour), l.fn)
		time.Sleep(23*time.Hour + 50*time.Minute)
		l.mu.Lock()
		seen := map[string]bool{}
		for _, p := range l.runs {
			if seen[p] {
				t.Errorf("%s ran twice", p)
			}
			seen[p] = true
		}
		l.mu.Unlock()
		for _, r := range []*running{a, b, d} {
			_ = r.stop(t)
		}
	})
}

// TestFailedPeriodIsTriedAgain with growing pauses, by its own host too, and
// together with the next ones.
func TestFailedPeriodIsTriedAgain(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		var failures, results int
		var good []string
		mine := errors.New("mine")
		j := New(connect(t, c), "/j", OnResult(func(d Done, err error) {
			if results++; (err != nil) != errors.Is(err, mine) || d.Period == "" {
				t.Errorf("%+v %v", d, err)
			}
		}))
		r := run(t, j, Every(time.Hour), func(_ context.Context, turn Turn) error {
			if turn.Period == "2000-01-01T01:00:00Z" && failures < 20 {
				failures++
				return mine
			}
			good = append(good, turn.Period)
			return nil
		})
		time.Sleep(3*time.Hour - time.Minute)
		synctest.Wait()
		want := []string{"2000-01-01T00:00:00Z", "2000-01-01T01:00:00Z", "2000-01-01T02:00:00Z"}
		if failures != 20 || !slices.Equal(good, want) || results != 23 {
			t.Fatalf("%d failures, %d results, done %v", failures, results, good)
		}
		_ = r.stop(t)
	})
}

// TestErrorsOfTheFunctionNeverEndRun, although they look like ours.
func TestErrorsOfTheFunctionNeverEndRun(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		tries := 0
		r := run(t, New(connect(t, c), "/j"), Every(time.Hour), func(context.Context, Turn) error {
			if tries++; tries < 3 {
				return client.ErrClosed
			}
			return nil
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := r.stop(t); !errors.Is(err, context.Canceled) || tries != 3 {
			t.Fatalf("%d tries, %v", tries, err)
		}
	})
}

func TestRunGoesOnUnderANewSession(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		var l log
		r := run(t, New(cl, "/j"), Every(time.Hour), l.fn)
		time.Sleep(time.Minute)
		c.Expire(uint64(cl.Session().ID()))
		time.Sleep(time.Hour)
		l.want(t, "2000-01-01T00:00:00Z", "2000-01-01T01:00:00Z")
		// It expires under the function too.
		sessions := c.Sessions()
		_ = r.stop(t)
		if c.Sessions() != sessions-1 {
			t.Fatal("the session is still there")
		}
		tries := 0
		cl = connect(t, c)
		r = run(t, New(cl, "/k"), Every(time.Hour), func(ctx context.Context, turn Turn) error {
			if tries++; tries == 1 {
				c.Expire(uint64(turn.Handle.Session().ID()))
				<-ctx.Done()
			}
			return nil
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if d, ok, err := New(connect(t, c), "/k").Done(t.Context(), "2000-01-01T01:00:00Z"); tries != 2 || !ok || err != nil {
			t.Fatalf("%d tries, %+v %v", tries, d, err)
		}
		_ = r.stop(t)
	})
}

func TestRunGivesUpWhatDoesNotHeal(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		for name, s := range map[string]Schedule{
			"every 0":   Every(0),
			"hour 24":   Daily(24, 0, nil),
			"minute -1": Daily(0, -1, nil),
			"no period": func(now time.Time) (string, time.Time) { return "", now.Add(time.Hour) },
			"no future": func(now time.Time) (string, time.Time) { return "p", now },
		} {
			if err := New(cl, "/j").Run(t.Context(), s, nothing); !errors.Is(err, ErrBadSchedule) || !errors.Is(err, client.ErrBadArguments) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := New(cl, "no-slash").Run(t.Context(), Every(time.Hour), nothing); !errors.Is(err, client.ErrBadPath) {
			t.Error(err)
		}
		_ = cl.Close()
		if err := New(cl, "/j").Run(t.Context(), Every(time.Hour), nothing); !errors.Is(err, client.ErrClosed) {
			t.Error(err)
		}
	})
}
