package zkimport

import (
	"slices"
	"testing"

	"github.com/coordd/coord/znode"
)

// TestCounterIsFoundInTheCversion goes over the bounds of the 32 bits in which a
// ZooKeeper shows twice the number of creates less the children there are.
func TestCounterIsFoundInTheCversion(t *testing.T) {
	for _, creates64 := range []int64{0, 1, 2, 7, 1<<30 - 1, 1 << 30, 1<<30 + 1, 1<<31 - 1} {
		for _, children := range []int32{0, 1, 5, 1 << 20} {
			if int64(children) > creates64+1 {
				continue // the root has a child that was never created
			}
			s := znode.Stat{Cversion: int64(int32(2*creates64 - int64(children))), NumChildren: children}
			if got := creates(&s); got != creates64 {
				t.Errorf("%d creates, %d children: %d", creates64, children, got)
			}
		}
	}
}

func TestPathsComeToStandWhereTheTopIsPut(t *testing.T) {
	for _, x := range []struct{ top, under, path, want string }{
		{"/", "/", "/", "/"},
		{"/", "/", "/a/b", "/a/b"},
		{"/", "/copy", "/", "/copy"},
		{"/", "/copy", "/a/b", "/copy/a/b"},
		{"/app", "/app", "/app/x", "/app/x"},
		{"/app", "/new/place", "/app", "/new/place"},
		{"/app", "/new/place", "/app/x/y", "/new/place/x/y"},
		{"/app", "/", "/app", "/"},
		{"/app", "/", "/app/x", "/x"},
	} {
		m := mapping{x.top, x.under}
		if got := m.to(x.path); got != x.want {
			t.Errorf("%s of %s to %s: %s, want %s", x.path, x.top, x.under, got, x.want)
		}
		if got := m.from(x.want); got != x.path {
			t.Errorf("%s of %s back from %s: %s, want %s", x.want, x.top, x.under, got, x.path)
		}
	}
}

func TestMaskedACLsAreNoticed(t *testing.T) {
	digest := func(id string) []znode.ACL {
		return []znode.ACL{{Perms: 1, Scheme: "world", ID: "anyone"}, {Perms: 31, Scheme: "digest", ID: id}}
	}
	for id, want := range map[string]bool{"ann:x": true, ":x": true, "ann:" + "QlpJtW3ZaaWIbR8Xa7mYzFgJVqc=": false, "x:y": false} {
		if got := masked(digest(id)); got != want {
			t.Errorf("%s: %v", id, got)
		}
	}
	if masked([]znode.ACL{{Perms: 1, Scheme: "x509", ID: "CN:x"}}) {
		t.Error("an x509 id is no digest")
	}
	if got := stored(nil); !slices.Equal(got, znode.OpenACL) {
		t.Errorf("no list at all: %v", got)
	}
	if got := stored(append(digest("a:b"), digest("a:b")...)); !slices.Equal(got, digest("a:b")) {
		t.Errorf("doubles: %v", got)
	}
}

func TestQuotasAreFoundByTheirPath(t *testing.T) {
	for path, want := range map[string]struct {
		top   string
		limit bool
	}{
		"/zookeeper/quota":                      {"", false},
		"/zookeeper/quota/a":                    {"/a", false},
		"/zookeeper/quota/a/zookeeper_limits":   {"/a", true},
		"/zookeeper/quota/a/b/zookeeper_limits": {"/a/b", true},
		"/zookeeper/quota/a/zookeeper_stats":    {"/a/zookeeper_stats", false},
		"/zookeeper/quota/zookeeper_limits":     {"", false},
	} {
		if top, limit := quotaTop(path); top != want.top || limit != want.limit {
			t.Errorf("%s: %q %v", path, top, limit)
		}
	}
}
