package znode

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/zxid"
)

// run is one random comparison of Tree and model.
type run struct {
	*testing.T
	*rand.Rand
	tree  *Tree
	model *model
	zxid  zxid.ID
	now   int64
}

// TestTreeDoesWhatTheModelDoes compares results, Stats, changes and the whole
// contents after random operations, with images taken, decoded and gone on with
// in between.
func TestTreeDoesWhatTheModelDoes(t *testing.T) {
	first := seed.New(t)
	rounds, steps := 60, 400
	if testing.Short() {
		rounds = 15
	}
	for k := range rounds {
		s := first + uint64(k)
		ok := t.Run(fmt.Sprintf("seed=%d", s), func(t *testing.T) {
			r := &run{T: t, Rand: rand.New(rand.NewPCG(s, 0)), tree: New(), model: newModel(), zxid: 100, now: 1000}
			for range steps {
				r.step()
			}
			r.compareAll()
		})
		if !ok {
			t.Fatalf("repeat this round at once with COORD_SEED=%d", s)
		}
	}
}

func (r *run) step() {
	switch k := r.IntN(100); {
	case k < 70:
		r.one()
	case k < 88:
		r.multi()
	case k < 91:
		r.endSession()
	case k < 94:
		r.reap()
	case k < 97:
		r.compareAll()
	default:
		r.restore()
	}
}

func (r *run) tx() (*Tx, *Tx) {
	r.zxid = r.zxid.Next()
	r.now += int64(r.IntN(20_000))
	tx := &Tx{Zxid: r.zxid, Time: r.now, Caller: r.caller(), Cause: Cause(r.IntN(3))}
	other := *tx
	return tx, &other
}

func (r *run) one() {
	tx, mtx := r.tx()
	op := r.op()
	got, err := r.tree.Apply(tx, &op)
	want, _ := r.model.apply(mtx, &op)
	if !errors.Is(err, got.Err) {
		r.Fatalf("%+v: error %v, in the result %v", op, err, got.Err)
	}
	r.same(op, []OpResult{got}, []OpResult{want}, tx, mtx)
}

func (r *run) multi() {
	tx, mtx := r.tx()
	ops := make([]Op, r.IntN(6))
	for i := range ops {
		ops[i] = r.op()
	}
	before := r.tree.Digest()
	got, err := r.tree.Multi(tx, ops)
	want, wantErr := r.model.multi(mtx, ops)
	if !errors.Is(meaning(err), meaning(wantErr)) {
		r.Fatalf("%+v: %v, want %v", ops, err, wantErr)
	}
	var failed *MultiError
	if err != nil && (!errors.As(err, &failed) || got[failed.Index].Err == nil || r.tree.Digest() != before) {
		r.Fatalf("%+v: %v, digest %x, before %x", ops, err, r.tree.Digest(), before)
	}
	r.same(ops, got, want, tx, mtx)
	if err := r.tree.Check(); err != nil {
		r.Fatalf("after %+v: %v", ops, err)
	}
}

func (r *run) endSession() {
	tx, mtx := r.tx()
	s := session.ID(1 + r.IntN(3))
	if got, want := r.tree.Ephemerals(s, "/"), r.model.ephemerals(s); !slices.Equal(got, want) {
		r.Fatalf("ephemerals of %v: %v, want %v", s, got, want)
	}
	linger := r.IntN(3) > 0
	r.tree.EndSession(tx, s, linger)
	r.model.endSession(mtx, s, linger)
	r.same(s, nil, nil, tx, mtx)
}

func (r *run) reap() {
	due := r.tree.Expired(r.now, 1000)
	var paths []string
	for _, x := range due {
		paths = append(paths, x.Path)
	}
	slices.Sort(paths)
	if want := r.model.expired(r.now); !slices.Equal(paths, want) {
		r.Fatalf("due: %v, want %v", paths, want)
	}
	for _, x := range due {
		tx, mtx := r.tx()
		if err := r.tree.Reap(tx, x); err != nil {
			r.Fatalf("reap %+v: %v", x, err)
		}
		r.model.remove(mtx, x.Path)
		r.same(x, nil, nil, tx, mtx)
	}
}

// restore goes on with a tree that was decoded from an image.
func (r *run) restore() {
	var first, second bytes.Buffer
	if err := r.tree.Snapshot().Encode(&first); err != nil {
		r.Fatal(err)
	}
	encoded := bytes.Clone(first.Bytes())
	tree, err := Decode(&first)
	if err != nil {
		r.Fatal(err)
	}
	if err := tree.Snapshot().Encode(&second); err != nil {
		r.Fatal(err)
	}
	if !bytes.Equal(encoded, second.Bytes()) || tree.Digest() != r.tree.Digest() {
		r.Fatal("a restored tree is not the same")
	}
	r.tree = tree
	r.compareAll()
}

func (r *run) same(what any, got, want []OpResult, tx, mtx *Tx) {
	r.Helper()
	if len(got) != len(want) {
		r.Fatalf("%+v: %d results, want %d", what, len(got), len(want))
	}
	for i := range got {
		g, w := got[i], want[i]
		g.Err, w.Err = meaning(g.Err), meaning(w.Err)
		if g != w {
			r.Fatalf("%+v\ncaller %+v\nresult %d is %+v (%v)\n         want %+v", what, tx.Caller, i, g, got[i].Err, w)
		}
	}
	if len(tx.Changes) != len(mtx.Changes) {
		r.Fatalf("%+v:\nchanges %+v\n   want %+v", what, tx.Changes, mtx.Changes)
	}
	for i := range tx.Changes {
		if !reflect.DeepEqual(tx.Changes[i], mtx.Changes[i]) {
			r.Fatalf("%+v:\nchange %d is %+v\n     want %+v", what, i, tx.Changes[i], mtx.Changes[i])
		}
	}
}

// compareAll compares everything that can be read.
func (r *run) compareAll() {
	if err := r.tree.Check(); err != nil {
		r.Fatal(err)
	}
	trusted := &Caller{Trusted: true}
	seen := map[string]bool{}
	for after, more := "", true; more; {
		var page []Entry
		var err error
		page, more, err = r.tree.Walk("/", trusted, after, 1+r.IntN(7))
		if err != nil {
			r.Fatal(err)
		}
		for _, e := range page {
			n, ok := r.model.nodes[e.Path]
			if !ok || seen[e.Path] || e.Stat != r.model.stat(e.Path) || !reflect.DeepEqual(e.Data, n.data) {
				r.Fatalf("%s is %+v, want %+v %+v", e.Path, e, n, r.model.stat(e.Path))
			}
			seen[e.Path], after = true, e.Path
			r.compareNode(e.Path, n, trusted)
		}
	}
	if len(seen) != len(r.model.nodes) || len(seen) != r.tree.Counts().Nodes {
		r.Fatalf("%d nodes, want %d", len(seen), len(r.model.nodes))
	}
}

func (r *run) compareNode(path string, n mnode, c *Caller) {
	list, _, err := r.tree.ACL(path, c)
	if err != nil || !slices.Equal(list, n.acl) {
		r.Fatalf("ACL of %s: %v, want %v (%v)", path, list, n.acl, err)
	}
	want := r.model.children(path)
	names, _, err := r.tree.Children(path, c)
	if err != nil || !slices.Equal(names, want) || names == nil {
		r.Fatalf("children of %s: %v, want %v (%v)", path, names, want, err)
	}
	if below, err := r.tree.CountDescendants(path, c); err != nil || below != r.model.descendants(path) {
		r.Fatalf("%d nodes below %s, want %d (%v)", below, path, r.model.descendants(path), err)
	}
}

func (r *run) pick(of ...string) string { return of[r.IntN(len(of))] }

func (r *run) caller() *Caller {
	c := &Caller{Session: session.ID(r.IntN(4)), Trusted: r.IntN(8) == 0}
	for _, id := range []string{"ann:x", "bob:y"} {
		if r.IntN(3) == 0 {
			c.Identities = append(c.Identities, Identity{Scheme: "digest", ID: id})
		}
	}
	return c
}

func (r *run) path() string {
	switch r.IntN(20) {
	case 0:
		return r.pick("", "a", "/", "//", "//a", "/a//b", "/a/", "/.", "/a/..", "/\x01", "/zookeeper", "/zookeeper/config", "/zookeeper/quota", "a/b")
	case 1, 2, 3:
		return r.pick("/zookeeper/quota", "/zookeeper/quota/a", "/zookeeper/quota/a/b") + r.pick("", "/zookeeper_limits", "/zookeeper_stats", "/a", "/b")
	}
	p := ""
	for range 1 + r.IntN(3) {
		p += "/" + r.pick("a", "b", "c", "dd")
	}
	if r.IntN(12) == 0 {
		p += fmt.Sprintf("%010d", r.IntN(4))
	}
	return p
}

func (r *run) data() []byte {
	switch r.IntN(6) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return []byte(r.pick("count=5,bytes=9", "count=-1,bytes=-1=;byteHardLimit=20;countHardLimit=4", "=;countHardLimit=2"))
	}
	return []byte("0123456789abcdef")[:1+r.IntN(15)]
}

func (r *run) acl() []ACL {
	lists := [][]ACL{
		nil,
		{{31, "world", "anyone"}, {31, "nonsense", "x"}},
		{{7, "auth", ""}, {9, "world", "anyone"}},
		{{31, "auth", "whatever"}},
		{{31, "digest", "ann:x"}, {1, "world", "anyone"}},
		{{5, "world", "anyone"}},
	}
	if k := r.IntN(20); k < len(lists) {
		return lists[k]
	}
	return OpenACL
}

func (r *run) op() Op {
	op := Op{Kind: OpKind(1 + r.IntN(6)), Path: r.path(), Version: AnyVersion}
	if r.IntN(4) == 0 {
		op.Kind = OpCreate
	}
	op.Data, op.ACL = r.data(), r.acl()
	if r.IntN(3) == 0 {
		op.Version, op.Version31 = int64(r.IntN(5)-2), r.IntN(2) == 0
	}
	if op.Kind == OpCreate {
		op.Node = Kind(r.IntN(4))
		op.Sequential = r.IntN(3) == 0
		r.times(&op)
		return op
	}
	if op.Kind == OpSequence {
		op.Version = []int64{-1, 0, MaxSequence, MaxSequence + 1, int64(r.IntN(60))}[min(r.IntN(80), 4)]
		return op
	}
	if op.Kind == OpSet && r.IntN(4) == 0 {
		op.TTL = []time.Duration{0, 0, Without, time.Second}[r.IntN(4)]
		op.Linger = r.linger()
	}
	if s, ok := r.tree.Exists(op.Path); ok && r.IntN(6) == 0 {
		op.Czxid = s.Czxid + zxid.ID(r.IntN(2))
		op.Owner = s.EphemeralOwner + session.ID(r.IntN(2))
	}
	return op
}

// times gives a node to create the times of its kind, and at times others.
func (r *run) times(op *Op) {
	odd := r.IntN(40) == 0
	if op.Node == TTL || op.Node == Ephemeral && r.IntN(3) == 0 || odd {
		op.TTL = time.Duration(r.IntN(60_000)) * time.Millisecond
	}
	if op.Node == Ephemeral && r.IntN(2) == 0 || odd {
		op.Linger = r.linger()
	}
}

func (r *run) linger() time.Duration {
	odd := []time.Duration{0, Without, time.Microsecond, MaxLinger + 1, MaxLinger, -time.Second}
	if k := r.IntN(24); k < len(odd) {
		return odd[k]
	}
	return time.Duration(1+r.IntN(60_000)) * time.Millisecond
}

func (m *model) descendants(path string) int {
	n, _ := m.weigh(path)
	if path == "/" {
		n = len(m.nodes)
	}
	return n - 1
}
