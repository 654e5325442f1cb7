package zkimport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/server"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
)

// bush fills the fake with folders of znodes and returns how many there are.
func (f *fakeZooKeeper) bush(top string, folders, each int) int {
	f.do(create(top, "top"))
	for i := range folders {
		dir := fmt.Sprintf("%s/f%d", top, i)
		f.do(create(dir, ""))
		for k := range each {
			f.do(create(fmt.Sprintf("%s/n%d", dir, k), strings.Repeat("d", k)))
		}
	}
	return 1 + folders*(1+each)
}

// TestTransactionsStayWithinTheClustersLimits: a cluster that takes little gets
// little at a time, and what it does not take at all is named with its setting.
func TestTransactionsStayWithinTheClustersLimits(t *testing.T) {
	t.Parallel()
	c := dial(t, target(t, func(cfg *server.Config) {
		cfg.Limits = server.Limits{OpsPerMulti: 3, NodeBytes: 1000, PathBytes: 40, FrameBytes: 64 << 10}
	}))
	f := newFake(t, 1)
	all := f.bush("/t", 7, 50)
	s := f.open()
	p, err := look(t, s, "/t").Plan(t.Context(), c, Options{Under: "/t"})
	if err != nil || !p.Ready() || p.Create != all {
		t.Fatalf("%+v, %v", p, err)
	}
	if r, err := p.Run(t.Context(), c); err != nil || r.Created != all || r.Bytes != p.Bytes {
		t.Errorf("%+v, %v", r, err)
	}
	same(t, s, c, "/t", "/t")
	f.do(create("/t/large", strings.Repeat("x", 1001)), create("/t/"+strings.Repeat("y", 38), ""))
	p, err = look(t, s, "/t").Plan(t.Context(), c, Options{Under: "/t"})
	if err != nil || len(p.Faults) != 2 || p.Faults[0].Limit != "limits.node_size" || p.Faults[1].Limit != "limits.path_size" {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err := p.Run(t.Context(), c); !errors.Is(err, ErrNotReady) {
		t.Errorf("carried out all the same: %v", err)
	}
}

// TestUnknownACLsAreNamed: an ACL that the cluster would refuse is a fault of its
// znode, and one that nobody can prove a note.
func TestUnknownACLsAreNamed(t *testing.T) {
	t.Parallel()
	c := dial(t, target(t, nil))
	f := newFake(t, 1)
	sasl := create("/a/sasl", "")
	sasl.ACL = []znode.ACL{{Perms: 31, Scheme: "sasl", ID: "kafka"}}
	f.do(create("/a", ""), sasl)
	p, err := look(t, f.open(superDigest), "/a").Plan(t.Context(), c, Options{Under: "/a"})
	if err != nil || !p.Ready() || len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "sasl") {
		t.Errorf("%+v, %v", p, err)
	}
	l := limitsOf(c)
	for _, acl := range [][]znode.ACL{
		{{Perms: 31, Scheme: "custom", ID: "x"}},
		{{Perms: 31, Scheme: "ip", ID: "nonsense"}},
		{{Perms: 31, Scheme: "auth"}},
		slices.Repeat([]znode.ACL{{Perms: 1, Scheme: "world", ID: "anyone"}}, maxACLs+1),
		{{Perms: 1, Scheme: "x509", ID: strings.Repeat("x", maxACLBytes+1)}},
	} {
		if f := l.faultOf(&node{path: "/a"}, acl, mapping{"/", "/"}); f == nil || f.Kind != FaultACL || f.Path != "/a" {
			t.Errorf("%.60v: %+v", acl, f)
		}
	}
}

// TestSourceThatChangesIsNoticed: znodes are changed, deleted and created between
// the survey and the copy.
func TestSourceThatChangesIsNoticed(t *testing.T) {
	t.Parallel()
	c := dial(t, target(t, nil))
	f := newFake(t, 1)
	f.do(create("/a", ""), create("/a/set", "old"), create("/a/gone", ""), create("/a/gone/below", ""))
	s := f.open()
	p, err := look(t, s, "/a").Plan(t.Context(), c, Options{Under: "/a"})
	if err != nil {
		t.Fatal(err)
	}
	f.do(znode.Op{Kind: znode.OpSet, Path: "/a/set", Data: []byte("new"), Version: -1}, znode.Op{Kind: znode.OpDelete, Path: "/a/gone/below", Version: -1},
		znode.Op{Kind: znode.OpDelete, Path: "/a/gone", Version: -1}, create("/a/late", ""))
	r, err := p.Run(t.Context(), c)
	if err != nil || !slices.Equal(r.Changed, []string{"/a/gone", "/a/set", "/a/gone/below"}) || r.Created != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if n, err := c.Get(t.Context(), "/a/set"); err != nil || string(n.Data) != "new" {
		t.Errorf("%q, %v", n.Data, err)
	}
	out, err := look(t, s, "/a").Verify(t.Context(), c, "/a")
	want := []Difference{{"/a", "counter", "the next number is 2, in the ensemble 3"}, {"/a/late", "missing", ""}}
	if err != nil || !slices.Equal(out.Differences, want) {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestSurveySeesWhatGoesAwayUnderIt: a znode that was listed and is not there any
// more is nobody's fault.
func TestSurveySeesWhatGoesAwayUnderIt(t *testing.T) {
	t.Parallel()
	f := newFake(t, 1)
	f.do(create("/a", ""), create("/a/gone", ""), create("/a/stays", ""))
	var once sync.Once
	f.before = func(_ string, typ wire.Type, path string) bool {
		if path == "/a/gone" {
			once.Do(func() { f.do(znode.Op{Kind: znode.OpDelete, Path: path, Version: -1}) })
		}
		return false
	}
	if v := look(t, f.open(), "/a"); v.Gone != 1 || v.Znodes() != 2 {
		t.Errorf("%d gone, %d znodes", v.Gone, v.Znodes())
	}
	if _, err := Look(t.Context(), f.open(), "/none", nil); !errors.Is(err, ErrNoTop) {
		t.Error(err)
	}
}

// TestClusterThatChangesStopsTheCopy: somebody creates a znode of the copy after it
// was planned. It is not overwritten, and the next import goes on.
func TestClusterThatChangesStopsTheCopy(t *testing.T) {
	t.Parallel()
	c := dial(t, target(t, nil))
	f := newFake(t, 1)
	all := f.bush("/t", 3, 400)
	s := f.open()
	p, err := look(t, s, "/t").Plan(t.Context(), c, Options{Under: "/t"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Txn(t.Context(), client.OpCreate("/t", []byte("top")), client.OpCreate("/t/f2", nil), client.OpCreate("/t/f2/n7", []byte("theirs"))); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Run(t.Context(), c); !errors.Is(err, client.ErrNodeExists) {
		t.Fatalf("%v, want that it exists", err)
	}
	p, err = look(t, s, "/t").Plan(t.Context(), c, Options{Under: "/t"})
	if err != nil || len(p.Conflicts) != 2 || p.Conflicts[0].Path != "/t/f2" || p.Conflicts[1].Path != "/t/f2/n7" {
		t.Fatalf("%+v, %v", p.Conflicts, err) // null is not empty
	}
	p, err = look(t, s, "/t").Plan(t.Context(), c, Options{Under: "/t", Overwrite: true})
	if err != nil || p.Overwrite != 2 {
		t.Fatalf("%+v, %v", p, err)
	}
	if r, err := p.Run(t.Context(), c); err != nil || r.Overwritten != 2 || r.Created != p.Create || p.Create+p.Overwrite+p.Present != all {
		t.Errorf("%+v, %v", r, err)
	}
	same(t, s, c, "/t", "/t")
}

// TestInterruptedCopyGoesOn ends the context at many moments of a copy; whatever is
// left, the next import makes it whole and the counters are right.
func TestInterruptedCopyGoesOn(t *testing.T) {
	t.Parallel()
	c := dial(t, target(t, nil))
	f := newFake(t, 1)
	all := f.bush("/t", 4, 300)
	for i := range 300 {
		f.do(znode.Op{Kind: znode.OpDelete, Path: fmt.Sprintf("/t/f0/n%d", i), Version: -1})
	}
	all -= 300
	s := f.open()
	var reads atomic.Int64
	var stop func()
	f.mu.Lock()
	f.before = func(_ string, typ wire.Type, _ string) bool {
		if typ == wire.GetData && reads.Add(-1) == 0 {
			stop()
		}
		return false
	}
	f.mu.Unlock()
	for round, at := range []int64{1, 2, 100, 400, 700, 900, int64(all)} {
		p, err := look(t, s, "/t").Plan(t.Context(), c, Options{Under: "/t"})
		if err != nil || !p.Ready() {
			t.Fatalf("round %d: %+v, %v", round, p, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		stop = cancel
		reads.Store(at)
		if r, err := p.Run(ctx, c); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("round %d: %+v, %v", round, r, err)
		}
		cancel()
		reads.Store(0)
	}
	p, err := look(t, s, "/t").Plan(t.Context(), c, Options{Under: "/t"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Run(t.Context(), c); err != nil {
		t.Error(err)
	}
	same(t, s, c, "/t", "/t")
	if made, err := c.Create(t.Context(), "/t/f0/n", nil, client.WithSequential()); err != nil || made.Path != "/t/f0/n0000000300" {
		t.Errorf("next is %s, %v", made.Path, err)
	}
	p, err = look(t, s, "/t").Plan(t.Context(), c, Options{Under: "/t"})
	if err != nil || !p.Empty() {
		t.Errorf("something is left to do: %+v, %v", p, err)
	}
}

// TestProgressReachesItsEnd: what is told of each phase is all that there is.
func TestProgressReachesItsEnd(t *testing.T) {
	t.Parallel()
	c := dial(t, target(t, nil))
	f := newFake(t, 1)
	all := int64(f.bush("/t", 2, 20))
	var p Progress
	v, err := Look(t.Context(), f.open(), "/t", &p)
	if err != nil {
		t.Fatal(err)
	}
	if st := p.State(); st.Phase != "reading" || st.Done < all || st.Total != 0 {
		t.Errorf("%+v", st)
	}
	plan, err := v.Plan(t.Context(), c, Options{Under: "/u/v"})
	if err != nil || !slices.Equal(plan.Parents, []string{"/u"}) {
		t.Fatalf("%+v, %v", plan, err)
	}
	if _, err := plan.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if st := p.State(); st.Phase != "copying" || st.Done != all || st.Total != all || st.Bytes != plan.Bytes {
		t.Errorf("%+v, %d bytes planned", st, plan.Bytes)
	}
}
