package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/coordd/coord/znode"
)

func TestSnapshotIsOfOneInstant(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	for i := range 300 {
		r.done(c.write(create(fmt.Sprintf("/n%d", i))))
	}
	image := r.m.Snapshot()
	digest, index, z := r.m.Digest()
	if image.Index() != index || image.Zxid() != z || image.Digest() != digest {
		t.Fatalf("image at %d, %s, %x", image.Index(), image.Zxid(), image.Digest())
	}
	var before bytes.Buffer
	if err := image.Encode(&before); err != nil {
		t.Fatal(err)
	}
	image = r.m.Snapshot()
	for i := range 300 {
		r.done(c.write(set(fmt.Sprintf("/n%d", i), "later")))
	}
	r.done(c.next(&Command{Kind: CmdClose}))
	var after bytes.Buffer
	if err := image.Encode(&after); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before.Bytes(), after.Bytes()) {
		t.Fatal("the image changed with the state")
	}
}

func TestImageIsReadWhileEntriesAreApplied(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	for i := range 500 {
		r.done(c.write(create(fmt.Sprintf("/n%d", i))))
	}
	image := r.m.Snapshot()
	done := make(chan []byte)
	go func() {
		var b bytes.Buffer
		if err := image.Encode(&b); err != nil {
			t.Error(err)
		}
		done <- b.Bytes()
	}()
	for i := range 500 {
		r.done(c.write(set(fmt.Sprintf("/n%d", i), "later")))
	}
	m := New(Options{})
	if err := m.Restore(bytes.NewReader(<-done)); err != nil {
		t.Fatal(err)
	}
	if d, _, _ := m.Digest(); d != image.Digest() {
		t.Fatal("another digest")
	}
}

func TestSnapshotCallIsShort(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a large tree")
	}
	r := newRig(t)
	c := r.open(1)
	for i := 0; i < 100_000; i += 500 {
		var cmds []*Command
		for k := range 500 {
			cmds = append(cmds, c.write(create(fmt.Sprintf("/n%06d", i+k))))
		}
		cmds[0].Ack = c.seq - 500
		r.entry(cmds...)
		r.hook.reset()
	}
	best := time.Hour
	for range 5 {
		start := time.Now()
		r.m.Snapshot()
		best = min(best, time.Since(start))
		r.done(c.write(set("/n000000", "x")))
	}
	if best > 10*time.Millisecond { // measured: 20 us
		t.Fatalf("the call took %s at its best", best)
	}
}

func TestRestoreSwapsAndTellsTheHookInOneStep(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	r.done(c.write(create("/a")))
	b := r.snapshot()
	other := New(Options{Hook: r.hook})
	r.hook.reset()
	if err := other.Restore(iotest.OneByteReader(bytes.NewReader(b))); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("restored %d %s", r.m.Index(), r.m.Zxid())
	if len(r.hook.order) != 1 || r.hook.order[0] != want {
		t.Fatalf("the hook heard %v, want %s", r.hook.order, want)
	}
	if other.Index() != r.m.Index() || other.Zxid() != r.m.Zxid() || other.EpochTerm() != r.m.EpochTerm() {
		t.Fatal("another position")
	}
}

func TestRestoreReplacesEverythingOfBefore(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	r.done(c.write(create("/a")))
	r.done(c.write(set("/a", "")))
	b := r.snapshot()
	r.m.callers[99] = &znode.Caller{}
	r.done(c.write(create("/later")))
	if err := r.m.Restore(bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	if r.exists("/later") || len(r.m.callers) != 0 {
		t.Fatal("something of the old state is left")
	}
}

func TestDamagedSnapshotsAreRefusedAndTheOldStateStays(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	for _, res := range r.entry(c.write(create("/a")), c.write(ephemeral("/e")), r.sessionless(requestWrite("id", r.clock+1000, create("/r")))) {
		r.is(res, StatusDone, nil)
	}
	good := r.snapshot()
	before := r.digest()
	refuse := func(what string, b []byte) {
		t.Helper()
		if err := r.m.Restore(bytes.NewReader(b)); !errors.Is(err, ErrBadSnapshot) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for n := range good {
		refuse(fmt.Sprintf("cut at %d", n), good[:n])
	}
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 0x20
		refuse(fmt.Sprintf("byte %d changed", i), b)
	}
	if r.digest() != before {
		t.Fatal("the state changed")
	}
	r.done(c.write(create("/b")))
}

func TestSnapshotOfAnUnknownVersionNamesBoth(t *testing.T) {
	r := newRig(t)
	b := r.snapshot()
	binary.LittleEndian.PutUint32(b[len(snapshotMagic):], 42)
	err := r.m.Restore(bytes.NewReader(b))
	if !errors.Is(err, ErrBadSnapshot) || !errors.Is(err, ErrNewerRelease) || !strings.Contains(err.Error(), "version 42") || !strings.Contains(err.Error(), "knows 1") {
		t.Fatalf("%v", err)
	}
}

func TestSnapshotOfAHigherFeatureLevelIsRefused(t *testing.T) {
	r := newRig(t)
	r.m.opts.FeatureLevel = 5
	r.done(&Command{Kind: CmdFeature, Feature: 5, Term: r.term})
	err := New(Options{}).Restore(bytes.NewReader(r.snapshot()))
	if !errors.Is(err, ErrBadSnapshot) || !errors.Is(err, ErrNewerRelease) || !strings.Contains(err.Error(), "level 5") {
		t.Fatalf("%v", err)
	}
}

// A snapshot whose parts are sound by themselves but belong to different states
// is found out by the digest.
func TestMixedSnapshotIsRefusedByItsDigest(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	r.done(c.write(create("/a")))
	image := r.m.Snapshot()
	r.done(c.write(set("/a", "other")))
	image.tree = r.m.Snapshot().tree
	var b bytes.Buffer
	if err := image.Encode(&b); err != nil {
		t.Fatal(err)
	}
	err := r.m.Restore(&b)
	if !errors.Is(err, ErrBadSnapshot) || !strings.Contains(err.Error(), "digest") {
		t.Fatalf("%v", err)
	}
}

func TestErrorsOfTheSourceAndTheSinkAreNotCalledDamage(t *testing.T) {
	r := newRig(t)
	b := r.snapshot()
	broken := errors.New("disk on fire")
	for _, n := range []int{0, 5, 20, len(b) / 2, len(b) - 4} {
		err := r.m.Restore(io.MultiReader(bytes.NewReader(b[:n]), iotest.ErrReader(broken)))
		if !errors.Is(err, broken) {
			t.Fatalf("source broken at %d: %v", n, err)
		}
	}
	if err := r.m.Snapshot().Encode(failingWriter{broken}); !errors.Is(err, broken) {
		t.Fatalf("sink broken: %v", err)
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }
