package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// FuzzCommand: no bytes make the decoder panic, and what it accepts it writes
// back to the byte.
func FuzzCommand(f *testing.F) {
	for _, c := range sampleCommands() {
		f.Add(AppendCommand(nil, c))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Command
		if err := DecodeCommand(b, &c); err != nil {
			if !errors.Is(err, ErrBadCommand) {
				t.Fatalf("untyped error %v", err)
			}
			if Validate(b) == nil {
				t.Fatal("Validate let through what does not decode")
			}
			return
		}
		if again := AppendCommand(nil, &c); !bytes.Equal(again, b) {
			t.Fatalf("%x came back as %x", b, again)
		}
		if line, seq, ok := PeekLine(b); !ok || line != c.Line || seq != c.Seq {
			t.Fatalf("peeked %+v %d %v", line, seq, ok)
		}
		SetAttempt(b, c.Attempt+1)
		if err := DecodeCommand(b, &c); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzBatch: no entry makes a machine panic or break its invariants, two
// machines agree on it, and a snapshot of what it led to gives the same state.
func FuzzBatch(f *testing.F) {
	for _, c := range sampleCommands() {
		f.Add(encodeEntry(startClock, c))
	}
	f.Add(encodeEntry(startClock, sampleCommands()...))
	log := newChaos(1, New(Options{}))
	for range 20 {
		_, _, data := log.entry()
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newRig(t)
		c := r.open(1)
		r.entry(c.write(create("/a")), c.write(ephemeral("/e")), c.write(sequential("/a/s-")))
		other := New(Options{})
		if err := other.Restore(bytes.NewReader(r.snapshot())); err != nil {
			t.Fatal(err)
		}
		err := r.m.ApplyEntry(r.index+1, r.term, data)
		err2 := other.ApplyEntry(r.index+1, r.term, data)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("one machine says %v, the other %v", err, err2)
		}
		if err != nil {
			if !errors.Is(err, ErrStop) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if d, _, _ := other.Digest(); d != r.digest() {
			t.Fatal("two machines differ")
		}
		if err := errors.Join(r.m.state.Tree.Check(), r.m.state.Sessions.Check()); err != nil {
			t.Fatal(err)
		}
		r.reborn()
	})
}

// FuzzSnapshot: no bytes make Restore panic, and what it accepts it writes back
// to the byte. The last checksum is put right, so that what is behind it is
// reached.
func FuzzSnapshot(f *testing.F) {
	r := newRig(f)
	f.Add(r.snapshot())
	c := r.open(1)
	r.entry(c.write(create("/a")), c.write(ephemeral("/e")), c.write(set("/none", "")),
		r.sessionless(requestWrite("id", r.clock+1000, create("/r"))))
	f.Add(r.snapshot())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 8 {
			b = binary.LittleEndian.AppendUint64(b[:len(b)-8:len(b)-8], xxhash.Sum64(b[:len(b)-8]))
		}
		m := New(Options{})
		if err := m.Restore(bytes.NewReader(b)); err != nil {
			if !errors.Is(err, ErrBadSnapshot) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if err := errors.Join(m.state.Tree.Check(), m.state.Sessions.Check()); err != nil {
			t.Fatal(err)
		}
		var again bytes.Buffer
		if err := m.Snapshot().Encode(&again); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.Bytes(), b) {
			t.Fatal("the restored state writes another snapshot")
		}
	})
}

// FuzzResult: remembered answers, as they stand in snapshots.
func FuzzResult(f *testing.F) {
	for _, r := range sampleResults() {
		f.Add(appendResult(nil, r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeResult(b)
		if err != nil {
			return
		}
		if again := appendResult(nil, r); !bytes.Equal(again, b) {
			t.Fatalf("%x came back as %x", b, again)
		}
		_, _ = r.Digest(), r.Size()
	})
}
