package znode

import (
	"bytes"
	"errors"
	"testing"

	"github.com/coordd/coord/zxid"
)

// tester drives a tree with transactions that follow each other.
type tester struct {
	*testing.T
	tree   *Tree
	tx     Tx
	caller Caller
}

func newTester(t *testing.T) *tester {
	return &tester{T: t, tree: New(), tx: Tx{Zxid: zxid.Make(1, 0), Time: 1000}}
}

// begin starts the next transaction, one second later.
func (t *tester) begin() *Tx {
	t.tx.Zxid = t.tx.Zxid.Next()
	t.tx.Time += 1000
	t.tx.Changes = nil
	c := t.caller
	t.tx.Caller = &c
	return &t.tx
}

func (t *tester) apply(op Op) (OpResult, error) {
	if (op.Kind == OpCreate || op.Kind == OpSetACL) && op.ACL == nil {
		op.ACL = OpenACL
	}
	return t.tree.Apply(t.begin(), &op)
}

// must applies an operation that has to succeed.
func (t *tester) must(op Op) OpResult {
	t.Helper()
	r, err := t.apply(op)
	if err != nil {
		t.Fatalf("%+v: %v", op, err)
	}
	return r
}

// fails applies an operation that has to fail, and to leave no trace.
func (t *tester) fails(want error, op Op) error {
	t.Helper()
	before := t.tree.Digest()
	_, err := t.apply(op)
	if !errors.Is(err, want) {
		t.Fatalf("%+v: %v, want %v", op, err, want)
	}
	if t.tree.Digest() != before || len(t.tx.Changes) != 0 {
		t.Fatalf("%+v: failed, but left %v", op, t.tx.Changes)
	}
	return err
}

func (t *tester) create(path string) OpResult {
	t.Helper()
	return t.must(Op{Kind: OpCreate, Path: path, Data: []byte{}})
}

func (t *tester) stat(path string) Stat {
	t.Helper()
	s, ok := t.tree.Exists(path)
	if !ok {
		t.Fatalf("%s is not there", path)
	}
	return s
}

func (t *tester) data(path string) string {
	t.Helper()
	b, _, err := t.tree.Get(path, &Caller{Trusted: true})
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return string(b)
}

func (t *tester) check() {
	t.Helper()
	if err := t.tree.Check(); err != nil {
		t.Fatal(err)
	}
}

// encode returns the tree's image as bytes.
func encode(t testing.TB, tree *Tree) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := tree.Snapshot().Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// restored is the tree as it comes out of its own image.
func (t *tester) restored() *Tree {
	t.Helper()
	tree, err := Decode(bytes.NewReader(encode(t, t.tree)))
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Check(); err != nil {
		t.Fatal(err)
	}
	if tree.Digest() != t.tree.Digest() {
		t.Fatal("the restored tree has another digest")
	}
	return tree
}
