package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/znode"
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

// connect dials the cluster and closes the client at the end of the test.
func connect(t *testing.T, c *fakecoord.Cluster, opts ...Option) *Client {
	t.Helper()
	began := time.Now()
	opts = append([]Option{
		WithGRPCOptions(c.DialOption()), WithLogger(slog.New(slog.DiscardHandler)),
		WithClock(func() time.Duration { return time.Since(began) + time.Hour }),
	}, opts...)
	cl, err := Dial(t.Context(), c.Target(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close() })
	return cl
}

// must fails the test on an error.
func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestOperations(t *testing.T) {
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		cl := connect(t, c)
		a := must[Created](t)(cl.Create(ctx, "/a", []byte("x")))
		if a.Path != "/a" || a.Stat.Czxid == 0 {
			t.Fatalf("created %+v", a)
		}
		if _, err := cl.Create(ctx, "/a", nil); !errors.Is(err, znode.ErrNodeExists) {
			t.Fatalf("second create: %v", err)
		}
		st := must[Stat](t)(cl.Set(ctx, "/a", []byte{}, 0))
		if st.Version != 1 {
			t.Fatalf("version %d", st.Version)
		}
		n := must[Node](t)(cl.Get(ctx, "/a"))
		if n.Data == nil || len(n.Data) != 0 || n.Stat != st {
			t.Fatalf("get: %+v", n)
		}
		must[Stat](t)(cl.Set(ctx, "/a", nil, AnyVersion))
		if n = must[Node](t)(cl.Get(ctx, "/a")); n.Data != nil {
			t.Fatalf("null came back as %q", n.Data)
		}
		var e *Error
		if _, err := cl.Set(ctx, "/a", nil, 9); !errors.Is(err, ErrBadVersion) || !errors.As(err, &e) || e.Have != 2 || e.Want != 9 {
			t.Fatalf("wrong version: %v", err)
		}
		if got, want := e.Error(), "set /a: version is 2, you said 9"; got != want {
			t.Fatalf("message %q", got)
		}
		seq := must[Created](t)(cl.Create(ctx, "/a/s-", nil, WithSequential(), WithEphemeral()))
		if seq.Path != "/a/s-0000000000" || seq.Stat.EphemeralOwner != cl.Session().ID() {
			t.Fatalf("sequential %+v", seq)
		}
		if names := must[[]string](t)(cl.Children(ctx, "/a")); !slices.Equal(names, []string{"s-0000000000"}) {
			t.Fatalf("children %v", names)
		}
		if names := must[[]string](t)(cl.Children(ctx, seq.Path)); names == nil || len(names) != 0 {
			t.Fatalf("children of a leaf: %#v", names)
		}
		if err := cl.Delete(ctx, "/a", AnyVersion); !errors.Is(err, ErrNotEmpty) {
			t.Fatalf("delete: %v", err)
		}
		if _, ok, err := cl.Exists(ctx, "/b"); ok || err != nil {
			t.Fatalf("exists: %v %v", ok, err)
		}
		if _, err := cl.Get(ctx, "no-slash"); !errors.Is(err, ErrBadPath) {
			t.Fatalf("bad path: %v", err)
		}
		if z, err := cl.Sync(ctx); err != nil || z == 0 {
			t.Fatalf("sync: %v %v", z, err)
		}
	})
}

func TestTransactionIsAllOrNothing(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		cl := connect(t, c)
		if r, err := cl.Txn(ctx); r != nil || err != nil {
			t.Fatalf("empty transaction: %v %v", r, err)
		}
		r, err := cl.Txn(ctx, OpCreate("/a", nil), OpCreate("/a/b", nil), OpSet("/none", nil, AnyVersion), OpDelete("/a", AnyVersion))
		var e *Error
		if !errors.Is(err, ErrNoNode) || !errors.As(err, &e) || e.Index != 2 || e.Path != "/none" {
			t.Fatalf("error %v", err)
		}
		if len(r) != 4 || !errors.Is(r[2].Err, ErrNoNode) || !errors.Is(r[3].Err, ErrRolledBack) {
			t.Fatalf("results %+v", r)
		}
		if left := c.Paths("/a"); len(left) != 0 {
			t.Fatalf("left behind: %v", left)
		}
		if _, err = cl.Txn(ctx, OpCreate("/a", nil), OpCheck("//", 1)); !errors.As(err, &e) || e.Index != 1 || !errors.Is(err, ErrBadPath) {
			t.Fatalf("bad path: %v", err)
		}
		r = must[[]OpResult](t)(cl.Txn(ctx, OpCreate("/a", nil), OpCheck("/a", 0)))
		if r[0].Path != "/a" {
			t.Fatalf("results %+v", r)
		}
		node := must[Node](t)(cl.Get(ctx, "/a"))
		if _, err = cl.Txn(ctx, OpCheckNode("/a", node.Stat.Czxid+1, 0)); !errors.Is(err, ErrBadVersion) {
			t.Fatalf("check of another node: %v", err)
		}
	})
}

func TestListsAreReadInPages(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		c.PageSize = 3
		ctx := t.Context()
		cl := connect(t, c)
		must[Created](t)(cl.Create(ctx, "/d", nil))
		var want []string
		for i := range 10 {
			name := fmt.Sprintf("c%d", i)
			want = append(want, name)
			must[Created](t)(cl.Create(ctx, "/d/"+name, []byte(name)))
		}
		if got := must[[]string](t)(cl.Children(ctx, "/d")); !slices.Equal(got, want) {
			t.Fatalf("children %v", got)
		}
		var paths []string
		for n, err := range cl.Walk(ctx, "/d") {
			if err != nil {
				t.Fatal(err)
			}
			paths = append(paths, n.Path)
			if n.Path != "/d" && string(n.Data) != n.Path[3:] {
				t.Fatalf("%s has %q", n.Path, n.Data)
			}
		}
		if len(paths) != 11 || paths[0] != "/d" || paths[10] != "/d/c9" {
			t.Fatalf("walk %v", paths)
		}
		for _, err := range cl.Walk(ctx, "/none") {
			if !errors.Is(err, ErrNoNode) {
				t.Fatalf("walk of nothing: %v", err)
			}
		}
	})
}

func TestChrootIsSeenNowhere(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		top := connect(t, c)
		must[Created](t)(top.Create(ctx, "/app", []byte("root")))
		cl := connect(t, c, WithChroot("/app"))
		if n := must[Node](t)(cl.Get(ctx, "/")); string(n.Data) != "root" || n.Path != "/" {
			t.Fatalf("root %+v", n)
		}
		events := make(chan Event, 10)
		go func() {
			for ev, err := range cl.Watch(ctx, "/", NodeAndChildren(), Initial(Linearizable)) {
				if err != nil {
					return
				}
				events <- ev
			}
		}()
		if ev := <-events; ev.Type != EventPresent || ev.Path != "/" {
			t.Fatalf("first event %+v", ev)
		}
		seq := must[Created](t)(cl.Create(ctx, "/s-", nil, WithSequential()))
		if seq.Path != "/s-0000000000" || len(c.Paths("/app/s-")) != 1 {
			t.Fatalf("created %s, there is %v", seq.Path, c.Paths("/"))
		}
		if ev := <-events; ev.Type != EventChildren || ev.Path != "/" {
			t.Fatalf("event on the root: %+v", ev)
		}
		must[Stat](t)(cl.Set(ctx, "/", []byte("new"), AnyVersion))
		if ev := <-events; ev.Type != EventChanged || ev.Path != "/" {
			t.Fatalf("event on the root: %+v", ev)
		}
		_, err := cl.Txn(ctx, OpCreate("/x", nil), OpDelete("/none", AnyVersion))
		var e *Error
		if !errors.As(err, &e) || e.Path != "/none" {
			t.Fatalf("error names %v", err)
		}
		r := must[[]OpResult](t)(cl.Txn(ctx, OpCreate("/x", nil)))
		if r[0].Path != "/x" {
			t.Fatalf("results name %s", r[0].Path)
		}
		for n, err := range cl.Walk(ctx, "/") {
			if err != nil || n.Path != "/" && n.Path != "/x" && n.Path != seq.Path {
				t.Fatalf("walk shows %s %v", n.Path, err)
			}
		}
	})
}

// TestPredecessorIsSeenByItsPath: through a chroot and below the root, too.
func TestPredecessorIsSeenByItsPath(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		top := connect(t, c)
		must[Created](t)(top.Create(ctx, "/app", nil))
		must[Created](t)(top.Create(ctx, "/app/q", nil))
		for cl, dirs := range map[*Client][]string{top: {"/", "/app/q/"}, connect(t, c, WithChroot("/app")): {"/", "/q/"}} {
			for _, dir := range dirs {
				first := must[Created](t)(cl.Create(ctx, dir+"z-", nil, WithSequential()))
				second := must[Created](t)(cl.Create(ctx, dir+"a-", nil, WithSequential()))
				at := must[Place](t)(cl.Predecessor(ctx, second.Path))
				if at.Before != first.Path || at.Ahead < 1 || at.Stat != second.Stat || at.Zxid < second.Stat.Czxid {
					t.Fatalf("%s: %+v, want %s before it", second.Path, at, first.Path)
				}
			}
			if _, err := cl.Predecessor(ctx, "/"); !errors.Is(err, ErrBadArguments) {
				t.Fatalf("the root: %v", err)
			}
			if _, err := cl.Predecessor(ctx, dirs[1]+"x-0000000099"); !errors.Is(err, ErrNoNode) {
				t.Fatalf("a node that is not there: %v", err)
			}
			if _, err := cl.Predecessor(ctx, "q"); !errors.Is(err, ErrBadPath) {
				t.Fatalf("a bad path: %v", err)
			}
		}
		must[Created](t)(top.Create(ctx, "/one", nil))
		only := must[Created](t)(top.Create(ctx, "/one/n-", nil, WithSequential()))
		if at := must[Place](t)(top.Predecessor(ctx, only.Path)); at.Before != "" || at.Ahead != 0 {
			t.Fatalf("the only one: %+v", at)
		}
	})
}

func TestReadModes(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		cl := connect(t, c)
		must[Created](t)(cl.Create(ctx, "/a", nil))
		c.Freeze()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if n, err := cl.Get(short, "/a", Mode(ReadStale)); err != nil || !n.Stale {
			t.Fatalf("stale read: %+v %v", n, err)
		}
		_, err := cl.Get(short, "/a")
		var e *Error
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) || len(e.Tried) != 1 {
			t.Fatalf("linearizable read without a majority: %v", err)
		}
		c.Thaw()
	})
}

// TestSessionOrder: a read in session order sees the writes made before it,
// although they have no answer yet.
func TestSessionOrder(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		cl := connect(t, c, WithReads(ReadSession))
		must[Created](t)(cl.Create(ctx, "/a", nil))
		for i := range 100 {
			want := fmt.Sprint(i)
			for j := range 20 {
				data := want
				if j < 19 {
					data = "older"
				}
				if err := cl.WriteAsync(nil, OpSet("/a", []byte(data), AnyVersion)); err != nil {
					t.Fatal(err)
				}
			}
			if n := must[Node](t)(cl.Get(ctx, "/a")); string(n.Data) != want {
				t.Fatalf("read %q behind a write of %q", n.Data, want)
			}
		}
	})
}

func TestRequestIDIsAppliedOnce(t *testing.T) {
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, WithoutSession())
		ctx := WithRequestID(t.Context(), "order-41")
		lost := 0
		c.OnReply(func(string, *coordpb.Reply) fakecoord.Action {
			if lost++; lost <= 2 {
				return fakecoord.Cut
			}
			return fakecoord.Pass
		})
		first := must[Created](t)(cl.Create(ctx, "/q-", nil, WithSequential()))
		again := must[Created](t)(cl.Create(ctx, "/q-", nil, WithSequential()))
		if first.Path != again.Path || len(c.Paths("/q-")) != 1 {
			t.Fatalf("%s, %s: %v", first.Path, again.Path, c.Paths("/q-"))
		}
	})
}

func TestLostAnswerWithoutSessionIsUnknown(t *testing.T) {
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, WithoutSession())
		c.OnReply(func(string, *coordpb.Reply) fakecoord.Action { return fakecoord.Cut })
		_, err := cl.Create(t.Context(), "/a", nil)
		var e *Error
		if !errors.Is(err, ErrUnknownOutcome) || !errors.As(err, &e) || e.Outcome != MaybeDone || len(e.Tried) != 1 {
			t.Fatalf("got %v", err)
		}
		if n := len(c.Paths("/a")); n != 1 {
			t.Fatalf("%d nodes", n)
		}
		if _, err := cl.WriteSettled(t.Context(), OpCreate("/b", nil)); !errors.Is(err, ErrBadArguments) {
			t.Fatalf("numbered write without a session: %v", err)
		}
	})
}

func TestTooLargeIsRefusedBeforeItBreaksTheConnection(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		c.SetLimits(&coordpb.Limits{FrameBytes: 100 << 10})
		cl := connect(t, c)
		_, err := cl.Create(t.Context(), "/a", make([]byte, 200<<10))
		var e *Error
		if !errors.Is(err, ErrTooLarge) || !errors.As(err, &e) || e.Limit == "" || e.Path != "/a" {
			t.Fatalf("got %v", err)
		}
		must[Created](t)(cl.Create(t.Context(), "/a", make([]byte, 90<<10)))
		if n := c.Counts().Attaches; n != 0 {
			t.Fatalf("%d reconnects", n)
		}
	})
}

func TestCallsShareMessages(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		const writes = 5000
		done := make(chan error, writes)
		for range writes {
			if err := cl.WriteAsync(func(_ []OpResult, err error) { done <- err }, OpCreate("/a-", nil, WithSequential())); err != nil {
				t.Fatal(err)
			}
		}
		for range writes {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		n := c.Counts()
		if n.Messages > writes/10 {
			t.Fatalf("%d messages for %d writes", n.Messages, writes)
		}
		if got := len(c.Paths("/a-")); got != writes || n.Writes != writes {
			t.Fatalf("%d nodes by %d writes", got, n.Writes)
		}
	})
}
