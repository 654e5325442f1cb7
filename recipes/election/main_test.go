package election

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coordd/coord/recipes/internal/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	fake    = rig.Fake
	connect = rig.Connect
)

func campaign(t *testing.T, e *Election, value string) *Leadership {
	t.Helper()
	l, err := e.Campaign(t.Context(), []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func resign(t *testing.T, l *Leadership) {
	t.Helper()
	if err := l.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// observe collects what Observe yields.
func observe(t *testing.T, e *Election) <-chan Leader {
	t.Helper()
	out := make(chan Leader, 10_000)
	go func() { // ends with the test
		for l, err := range e.Observe(t.Context()) {
			if err != nil {
				return
			}
			out <- l
		}
	}()
	return out
}

func next(t *testing.T, seen <-chan Leader) Leader {
	t.Helper()
	select {
	case l := <-seen:
		return l
	case <-time.After(time.Minute):
		t.Fatal("nothing was observed")
		return Leader{}
	}
}

// wantLeaders fails the test unless leaders with these values come next ("-" for
// none), and nothing behind them.
func wantLeaders(t *testing.T, seen <-chan Leader, values ...string) {
	t.Helper()
	for _, want := range values {
		l := next(t, seen)
		got := string(l.Value)
		if l.None() {
			got = "-"
		}
		if got != want {
			t.Fatalf("observed %q, want %q", got, want)
		}
	}
	synctest.Wait()
	if len(seen) > 0 {
		t.Fatalf("observed too much: %+v", <-seen)
	}
}

// running is one Run in a goroutine of its own.
type running struct {
	cancel context.CancelFunc
	done   chan error
}

func run(t *testing.T, e *Election, value string, fn func(ctx context.Context, l *Leadership) error) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{cancel, make(chan error, 1)}
	go func() { r.done <- e.Run(ctx, []byte(value), fn) }()
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
