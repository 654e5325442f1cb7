package settle

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/recipes/internal/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake runs f in fake time with a client of a cluster of one server.
func fake(t *testing.T, f func(t *testing.T, c *fakecoord.Cluster, cl *client.Client)) {
	t.Helper()
	rig.Fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		f(t, c, rig.Connect(t, c, client.WithSessionTimeout(time.Minute)))
	})
}

func entry() client.Op { return client.OpCreate("/e-", nil, client.WithSequential()) }

func undoing(cl *client.Client) func([]client.OpResult) <-chan error {
	return func(made []client.OpResult) <-chan error { return NodeOf(made[0]).Remove(cl) }
}

func TestWriteReturnsWhatWasDone(t *testing.T) {
	fake(t, func(t *testing.T, c *fakecoord.Cluster, cl *client.Client) {
		results, err := Write(t.Context(), cl, undoing(cl), entry())
		if err != nil || len(results) != 1 || len(c.Paths("/e-")) != 1 {
			t.Fatal(results, err)
		}
		if _, err := Write(t.Context(), cl, undoing(cl), client.OpDelete("/none", 0)); !errors.Is(err, client.ErrNoNode) {
			t.Fatal(err)
		}
	})
}

// TestWhatIsDoneTooLateIsUndone: the caller is back after the grace, and what the
// cluster does then leaves nothing.
func TestWhatIsDoneTooLateIsUndone(t *testing.T) {
	for _, silence := range []time.Duration{Grace / 2, 10 * Grace} {
		fake(t, func(t *testing.T, c *fakecoord.Cluster, cl *client.Client) {
			c.Server("n1").Mute() // it does the write and does not say so
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			time.AfterFunc(time.Second+silence, c.Server("n1").Unmute)
			_, err := Write(ctx, cl, undoing(cl), entry())
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second+Grace {
				t.Fatal(err, time.Since(began))
			}
			time.Sleep(time.Minute)
			if left := c.Paths("/e-"); len(left) != 0 {
				t.Fatalf("left: %v", left)
			}
		})
	}
}

// TestWriteThatIsNotUndoneIsNotDenied: one who asks for no undo has to know what
// became of the write, or that this is not known.
func TestWriteThatIsNotUndoneIsNotDenied(t *testing.T) {
	for _, silence := range []time.Duration{Grace / 2, 10 * Grace} {
		fake(t, func(t *testing.T, c *fakecoord.Cluster, cl *client.Client) {
			c.Server("n1").Mute()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			time.AfterFunc(time.Second+silence, c.Server("n1").Unmute)
			made, err := Write(ctx, cl, nil, entry())
			if known := silence < Grace; known && (err != nil || len(made) != 1) {
				t.Fatal(made, err)
			} else if !known && (!errors.Is(err, client.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded)) {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if len(c.Paths("/e-")) != 1 {
				t.Fatal("it was undone")
			}
		})
	}
}

// TestUndoIsWaitedFor: when Write returns nothing is left, if the cluster answers
// in time.
func TestUndoIsWaitedFor(t *testing.T) {
	fake(t, func(t *testing.T, c *fakecoord.Cluster, cl *client.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		c.OnWrite(func(*coordpb.Write) { cancel() })
		if _, err := Write(ctx, cl, undoing(cl), entry()); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if left := c.Paths("/e-"); len(left) != 0 {
			t.Fatalf("left: %v", left)
		}
	})
}

func TestWhatIsSentIsDoneWithoutItsCaller(t *testing.T) {
	fake(t, func(t *testing.T, c *fakecoord.Cluster, cl *client.Client) {
		c.Freeze()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if err := Await(ctx, Send(cl, entry()), Grace); !errors.Is(err, client.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if took := time.Since(began); took != Grace {
			t.Fatal(took)
		}
		c.Thaw()
		synctest.Wait()
		if len(c.Paths("/e-")) != 1 {
			t.Fatal("it was not done")
		}
		if err := Await(ctx, Send(cl, entry()), Grace); err != nil { // done in time, although ctx is over
			t.Fatal(err)
		}
	})
}

func TestFoldersAreContainers(t *testing.T) {
	fake(t, func(t *testing.T, _ *fakecoord.Cluster, cl *client.Client) {
		for _, p := range []string{"/", "/a", "/a/b/c", "/a/b"} {
			if err := Folders(t.Context(), cl, p); err != nil {
				t.Fatal(p, err)
			}
		}
		for _, p := range []string{"/a", "/a/b", "/a/b/c"} {
			if n, err := cl.Get(t.Context(), p); err != nil || n.Stat.Kind != client.Container {
				t.Fatal(p, n.Stat.Kind, err)
			}
		}
		for path, want := range map[string]string{"/a/b": "/a", "/a": "/", "/": "/", "": "", "x": "x"} {
			if got := Parent(path); got != want {
				t.Errorf("the parent of %q is %q, want %q", path, got, want)
			}
		}
	})
}
