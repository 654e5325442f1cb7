package server

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// queueTester is a tree and the queues that follow it.
type queueTester struct {
	*testing.T
	tree *znode.Tree
	qs   *queues
	z    zxid.ID
}

func newQueueTester(t *testing.T) *queueTester {
	return &queueTester{T: t, tree: znode.New(), qs: newQueues(newStopwatch())}
}

func (q *queueTester) apply(ops ...znode.Op) []znode.OpResult {
	q.Helper()
	q.z++
	for i := range ops {
		if ops[i].ACL == nil {
			ops[i].ACL = znode.OpenACL
		}
		ops[i].Version = znode.AnyVersion
	}
	tx := znode.Tx{Zxid: q.z, Time: int64(q.z), Caller: &znode.Caller{Session: 7}}
	results, err := q.tree.Multi(&tx, ops)
	if err != nil {
		q.Fatal(err)
	}
	q.qs.applied(tx.Changes)
	return results
}

// same fails unless the place of a child is what a look at all children says.
func (q *queueTester) same(path, child string, c *znode.Caller) {
	q.Helper()
	q.sameOf(path, child, "", c)
	for _, text := range []string{"e-", "7", "-00000000", "nowhere", "past the most"} {
		q.sameOf(path, child, text, c)
	}
}

func (q *queueTester) sameOf(path, child, containing string, c *znode.Caller) {
	q.Helper()
	before, ahead, st, err := q.qs.place(q.tree, &queueRead{path, child, containing, c})
	wantBefore, wantAhead, wantStat, wantErr := q.tree.Predecessor(path, child, containing, c)
	if before != wantBefore || ahead != wantAhead || st != wantStat || (err == nil) != (wantErr == nil) || err != nil && !errors.Is(err, errors.Unwrap(wantErr)) && !errors.Is(err, wantErr) {
		q.Fatalf("%s in %s (%q): %q, %d ahead, %+v, %v; want %q, %d, %+v, %v",
			child, path, containing, before, ahead, st, err, wantBefore, wantAhead, wantStat, wantErr)
	}
}

func sequential(path string) znode.Op {
	return znode.Op{Kind: znode.OpCreate, Path: path, Sequential: true}
}

// TestKeptQueueSaysWhatTheTreeSays while children come and go, several in one
// transaction, by the end of a session, and with the node itself.
func TestKeptQueueSaysWhatTheTreeSays(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 5))
	q := newQueueTester(t)
	caller := &znode.Caller{}
	q.apply(znode.Op{Kind: znode.OpCreate, Path: "/l"}, znode.Op{Kind: znode.OpCreate, Path: "/other"})
	var names []string
	join := func(n int) {
		var ops []znode.Op
		for range n {
			ops = append(ops, sequential(fmt.Sprintf("/l/%08x-", r.Uint32())))
		}
		if r.IntN(2) == 0 {
			ops[0].Node = znode.Ephemeral
			ops[0].Sequential, ops[0].Path = false, fmt.Sprintf("/l/e-%d-%010d", q.z, r.IntN(1000))
		}
		for _, res := range q.apply(ops...) {
			names = append(names, strings.TrimPrefix(res.Path, "/l/"))
		}
	}
	for len(names) < 2*keepFrom {
		join(1 + r.IntN(20))
	}
	for i := range 2000 {
		switch r.IntN(5) {
		case 0, 1:
			join(1 + r.IntN(3))
		case 2, 3:
			k := r.IntN(len(names))
			q.apply(znode.Op{Kind: znode.OpDelete, Path: "/l/" + names[k]})
			names = slices.Delete(names, k, k+1)
		default:
			q.apply(znode.Op{Kind: znode.OpSet, Path: "/l"}, sequential("/other/x-"), znode.Op{Kind: znode.OpSet, Path: "/l/" + names[0]})
		}
		if i == 1000 {
			tx := znode.Tx{Zxid: q.z + 1, Caller: &znode.Caller{Trusted: true}, Cause: znode.BySessionExpiry}
			q.z++
			q.tree.EndSession(&tx, 7, true)
			q.qs.applied(tx.Changes)
			names = slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, "e-") })
		}
		q.same("/l", names[r.IntN(len(names))], caller)
	}
	if n := q.qs.built.Load(); n != 1 {
		t.Fatalf("the queue was built %d times", n)
	}
	for _, odd := range []string{"", "e-1", "none-0000000001", "../other", "x/y-0000000001"} {
		q.same("/l", odd, caller)
	}
	// The node again, as another one.
	for _, n := range names {
		q.apply(znode.Op{Kind: znode.OpDelete, Path: "/l/" + n})
	}
	q.apply(znode.Op{Kind: znode.OpDelete, Path: "/l"})
	q.same("/l", names[0], caller)
	q.apply(znode.Op{Kind: znode.OpCreate, Path: "/l"})
	names = nil
	for len(names) < 2*keepFrom {
		join(20)
	}
	q.same("/l", names[len(names)/2], caller)
}

// TestQueueThatMissedAChangeIsBuiltAnew: it never answers from what is not up to
// date.
func TestQueueThatMissedAChangeIsBuiltAnew(t *testing.T) {
	q := newQueueTester(t)
	caller := &znode.Caller{}
	var names []string
	for range keepFrom + 10 {
		names = append(names, strings.TrimPrefix(q.apply(sequential("/n-"))[0].Path, "/"))
	}
	q.same("/", names[keepFrom], caller)
	for i, miss := range []znode.Op{
		{Kind: znode.OpDelete, Path: "/" + names[5]},
		sequential("/a-"),
	} {
		kept := q.qs.kept.Swap(0) // nothing is followed
		q.apply(miss)
		q.qs.kept.Store(kept)
		q.same("/", names[keepFrom], caller)
		q.same("/", names[6], caller)
		if n := q.qs.built.Load(); n != int64(i+2) {
			t.Fatalf("built %d times", n)
		}
	}
	if err := q.tree.SetSequence("/", 1<<40); err != nil {
		t.Fatal(err)
	}
	q.same("/", names[keepFrom], caller)
	q.qs.reset()
	q.same("/", names[keepFrom], caller)
	if n := q.qs.built.Load(); n != 5 {
		t.Fatalf("built %d times", n)
	}
}

func TestQueueIsNotShownToWhoMayNotList(t *testing.T) {
	q := newQueueTester(t)
	q.apply(znode.Op{Kind: znode.OpCreate, Path: "/l"})
	var name string
	for range keepFrom + 1 {
		name = strings.TrimPrefix(q.apply(sequential("/l/n-"))[0].Path, "/l/")
	}
	q.same("/l", name, &znode.Caller{})
	q.apply(znode.Op{Kind: znode.OpSetACL, Path: "/l", ACL: []znode.ACL{{Perms: znode.PermCreate, Scheme: "world", ID: "anyone"}}})
	if _, _, _, err := q.qs.place(q.tree, &queueRead{"/l", name, "", &znode.Caller{}}); !errors.Is(err, znode.ErrNoAuth) {
		t.Fatalf("got %v", err)
	}
}

func TestIdleQueuesAreForgotten(t *testing.T) {
	q := newQueueTester(t)
	for i := range maxKept + 2 {
		q.qs.keep(fmt.Sprint("/", i), &znode.Stat{NumChildren: keepFrom})
	}
	if n := len(q.qs.byPath); n != maxKept || int(q.qs.kept.Load()) != n {
		t.Fatalf("%d queues are kept", n)
	}
	if q.qs.keep("/huge", &znode.Stat{NumChildren: keepUpTo + 1}) != nil {
		t.Fatal("a queue that is too long to be built is kept")
	}
	q.qs.sweep()
	if n := len(q.qs.byPath); n != maxKept {
		t.Fatalf("%d queues are left that were asked for just now", n)
	}
	q.qs.clock.started = q.qs.clock.started.Add(-keepIdle - time.Second)
	q.qs.keep("/3", &znode.Stat{NumChildren: keepFrom})
	q.qs.sweep()
	if n := len(q.qs.byPath); n != 1 || q.qs.kept.Load() != 1 {
		t.Fatalf("%d queues are left", n)
	}
}

// TestLongQueueOverTheWire: applies and reads of a running server agree, and the
// order was built once, when the queue became long.
func TestLongQueueOverTheWire(t *testing.T) {
	r := start(t, oneServer(t))
	c := r.open()
	c.must(create("/l", ""))
	var names []string
	for range keepFrom + 100 {
		op := create("/l/n-", "")
		op.Sequential = true
		c.offer(op)
	}
	for seq := uint64(2); seq <= c.seq; seq++ {
		names = append(names, strings.TrimPrefix(c.answer(seq).GetResults()[0].GetPath(), "/l/"))
	}
	for len(names) > keepFrom {
		at := len(names) - 7
		c.must(remove("/l/" + names[at-1]))
		names = slices.Delete(names, at-1, at)
		at--
		got := c.read(&coordpb.Read{Kind: coordpb.Read_KIND_PREDECESSOR, Path: "/l", After: names[at], Mode: coordpb.ReadMode_READ_MODE_SESSION}).GetRead()
		if int(got.GetCount()) != at || !slices.Equal(got.GetNames(), names[at-1:at]) {
			t.Fatalf("%d entries: %v, want %d behind %s", len(names), got, at, names[at-1])
		}
	}
	if n := r.queues.built.Load(); n != 1 {
		t.Fatalf("the order was built %d times", n)
	}
}
