package client

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/znode"
)

func TestBidGoesAfterItsTimeUnlessItWins(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		cl := connect(t, c)
		for _, opts := range [][]CreateOption{{WithEphemeral(), WithTTL(time.Minute)}, {WithTTL(time.Minute), WithEphemeral()}} {
			lost := must[Created](t)(cl.Create(ctx, "/lost-", nil, append(opts, WithSequential())...))
			won := must[Created](t)(cl.Create(ctx, "/won-", nil, append(opts, WithSequential())...))
			if s := won.Stat; s.Kind != Ephemeral || s.EphemeralOwner != cl.Session().ID() || s.TTL != time.Minute {
				t.Fatalf("stat %+v", s)
			}
			time.Sleep(30 * time.Second)
			s := must[Stat](t)(cl.Set(ctx, won.Path, []byte("held"), 0, ClearTTL(), SetLinger(time.Second)))
			if s.TTL != 0 || s.Linger != time.Second || s.Kind != Ephemeral {
				t.Fatalf("after the set %+v", s)
			}
			time.Sleep(31 * time.Second)
			for path, want := range map[string]bool{lost.Path: false, won.Path: true} {
				if _, ok, err := cl.Exists(ctx, path); ok != want || err != nil {
					t.Errorf("%s is there: %v (%v)", path, ok, err)
				}
			}
		}
	})
}

// TestNodeOutlivesALostSessionOnly, as a watch of another client sees it.
func TestNodeOutlivesALostSessionOnly(t *testing.T) {
	const linger = 10 * time.Second
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		other := connect(t, c)
		for _, clean := range []bool{true, false} {
			cl := connect(t, c)
			owner := cl.Session().ID()
			made := must[Created](t)(cl.Create(t.Context(), "/e", []byte("card"), WithEphemeral(), WithLinger(linger)))
			var ended time.Time
			for e, err := range other.Watch(t.Context(), "/e", Initial(Linearizable)) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Type == EventPresent {
					ended = time.Now()
					if clean {
						_ = cl.Close()
					} else {
						c.Expire(uint64(owner))
					}
					continue
				}
				if e.Type == EventChanged {
					if clean || e.Cause != znode.BySessionExpiry || e.Session != owner || e.Stat.Czxid != made.Stat.Czxid || e.Stat.Kind != TTL ||
						e.Stat.TTL != linger || e.Stat.EphemeralOwner != 0 || e.Stat.Linger != 0 {
						t.Errorf("event %+v", e)
					}
					_, err := other.Txn(t.Context(), OpCheckNode("/e", made.Stat.Czxid, owner))
					if !errors.Is(err, ErrBadVersion) {
						t.Errorf("the guard of the lost owner: %v", err)
					}
					continue
				}
				took := time.Since(ended)
				if e.Type != EventDeleted || clean && (took > time.Second || e.Cause != znode.BySessionClose) ||
					!clean && (took < linger || took > linger+time.Second || e.Cause != znode.ByReaper) {
					t.Errorf("clean %v: %+v after %v", clean, e, took)
				}
				break
			}
		}
	})
}

func TestTimesThatTheProtocolCannotSayAreRefused(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		cl := connect(t, c)
		must[Created](t)(cl.Create(ctx, "/e", nil, WithEphemeral()))
		must[Created](t)(cl.Create(ctx, "/p", nil))
		before := c.Counts().Writes
		for i, op := range []Op{
			OpCreate("/x", nil, WithTTL(0)),
			OpCreate("/x", nil, WithTTL(-time.Millisecond), WithEphemeral()),
			OpCreate("/x", nil, WithTTL(time.Microsecond), WithEphemeral()),
			OpCreate("/x", nil, WithEphemeral(), WithLinger(-time.Millisecond)),
			OpCreate("/x", nil, WithEphemeral(), WithLinger(1500*time.Microsecond)),
			OpSet("/e", nil, AnyVersion, SetLinger(-time.Millisecond)),
			OpSet("/e", nil, AnyVersion, SetLinger(time.Nanosecond)),
		} {
			if _, err := cl.Txn(ctx, op); !errors.Is(err, ErrBadArguments) {
				t.Errorf("%d: %v", i, err)
			}
		}
		if n := c.Counts().Writes - before; n != 0 {
			t.Errorf("%d of them were sent", n)
		}
		for i, op := range []Op{
			OpCreate("/x", nil, WithLinger(time.Second)),
			OpCreate("/x", nil, WithContainer(), WithTTL(time.Second), WithContainer()),
			OpCreate("/x", nil, WithTTL(time.Second), WithLinger(time.Second)),
			OpCreate("/x", nil, WithEphemeral(), WithLinger(time.Hour+time.Millisecond)),
			OpSet("/e", nil, AnyVersion, SetLinger(2*time.Hour)),
			OpSet("/p", nil, AnyVersion, SetLinger(time.Second)),
			OpSet("/p", nil, AnyVersion, SetLinger(0)),
			OpSet("/p", nil, AnyVersion, ClearTTL()),
		} {
			if _, err := cl.Txn(ctx, op); !errors.Is(err, ErrBadArguments) {
				t.Errorf("%d, by the cluster: %v", i, err)
			}
		}
		if got := must[Stat](t)(cl.Set(ctx, "/e", nil, AnyVersion, SetLinger(time.Hour), ClearTTL())); got.Linger != time.Hour {
			t.Errorf("stat %+v", got)
		}
		if got := must[Stat](t)(cl.Set(ctx, "/e", nil, AnyVersion, SetLinger(0))); got.Linger != 0 {
			t.Errorf("stat %+v", got)
		}
		if made := must[Created](t)(cl.Create(ctx, "/plain", nil, WithEphemeral(), WithLinger(0))); made.Stat.Linger != 0 {
			t.Errorf("stat %+v", made.Stat)
		}
	})
}

func TestNearestOfAKindIsFound(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		cl := connect(t, c)
		must[Created](t)(cl.Create(ctx, "/q", nil))
		var paths []string
		for _, kind := range []string{"w", "r", "r", "w", "r"} {
			paths = append(paths, must[Created](t)(cl.Create(ctx, "/q/"+kind+"-", nil, WithSequential())).Path)
		}
		for at, want := range []string{"", paths[0], paths[0], paths[0], paths[3]} {
			got := must[Place](t)(cl.Predecessor(ctx, paths[at], Containing("w-")))
			if got.Before != want || got.Ahead != at {
				t.Errorf("before %s: %+v, want %s", paths[at], got, want)
			}
		}
	})
}

func TestEphemeralsOfAnySessionAreListed(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		c.PageSize = 2
		top := connect(t, c)
		must[Created](t)(top.Create(ctx, "/app", nil))
		must[Created](t)(top.Create(ctx, "/apple", nil, WithEphemeral()))
		var want []string
		for i := range 5 {
			must[Created](t)(top.Create(ctx, fmt.Sprintf("/app/%d", i), nil, WithEphemeral()))
			want = append(want, fmt.Sprintf("/%d", i))
		}
		inside := connect(t, c, WithChroot("/app"))
		for name, cl := range map[string]*Client{"inside": inside, "without a session": connect(t, c, WithChroot("/app"), WithoutSession())} {
			if got := must[[]string](t)(cl.EphemeralsOf(ctx, top.Session().ID(), "/")); !slices.Equal(got, want) {
				t.Errorf("%s: %v", name, got)
			}
		}
		if got := must[[]string](t)(inside.Ephemerals(ctx, "/")); got == nil || len(got) != 0 {
			t.Errorf("it owns %#v", got)
		}
		if got := must[[]string](t)(top.Ephemerals(ctx, "/")); len(got) != 6 || got[5] != "/apple" {
			t.Errorf("own: %v", got)
		}
		if got := must[[]string](t)(top.EphemeralsOf(ctx, top.Session().ID(), "/app/3", Mode(ReadSession))); !slices.Equal(got, []string{"/app/3"}) {
			t.Errorf("one: %v", got)
		}
		c.End(uint64(top.Session().ID()), coordpb.SessionEnd_SESSION_END_KILLED)
		if got := must[[]string](t)(inside.EphemeralsOf(ctx, top.Session().ID(), "/")); len(got) != 0 {
			t.Errorf("of a session that has ended: %v", got)
		}
	})
}
