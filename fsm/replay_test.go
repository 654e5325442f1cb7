package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"
)

// replicas apply one log; digests are compared after every entry.
type logEntry struct {
	index, term uint64
	data        []byte
}

// TestReplicasAgree applies one random log on three machines, one of which is
// replaced half-way by a machine restored from its snapshot, and a fourth that
// joins from a snapshot of the first.
func TestReplicasAgree(t *testing.T) {
	entries, seeds := 600, int64(12)
	if testing.Short() {
		seeds = 3
	}
	for seed := int64(1); seed <= seeds; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { replay(t, seed, entries) })
	}
}

func replay(t *testing.T, seed int64, entries int) {
	hooks := []*recorder{{}, {}, {}}
	ms := make([]*Machine, 3)
	for i := range ms {
		ms[i] = New(Options{Hook: hooks[i]})
	}
	log := newChaos(seed, ms[0])
	seen := map[Status]int{}
	for n := range entries {
		if n == entries/2 {
			ms[2] = restored(t, ms[2], hooks[2])
			ms = append(ms, restored(t, ms[0], &recorder{}))
		}
		if n%97 == 0 {
			ms[1].Snapshot() // its copies on write must change nothing
		}
		e := logEntry{}
		e.index, e.term, e.data = log.entry()
		for _, m := range ms {
			if err := m.ApplyEntry(e.index, e.term, e.data); err != nil {
				t.Fatal(err)
			}
		}
		agree(t, ms)
		sameResults(t, hooks)
		for _, r := range hooks[0].results {
			seen[r.Status]++
		}
		for _, h := range hooks {
			h.reset()
		}
	}
	for _, m := range ms {
		if err := errors.Join(m.state.Tree.Check(), m.state.Sessions.Check()); err != nil {
			t.Fatal(err)
		}
	}
	first := encode(t, ms[0])
	for i, m := range ms[1:] {
		if !bytes.Equal(encode(t, m), first) {
			t.Fatalf("machine %d writes another snapshot", i+1)
		}
	}
	for _, s := range []Status{StatusDone, StatusRepeat, StatusGap, StatusAgain, StatusMoved, StatusGone, StatusAcknowledged, StatusOldBoot} {
		if seen[s] == 0 {
			t.Errorf("the log never led to status %s: %v", s, seen)
		}
	}
}

func agree(t *testing.T, ms []*Machine) {
	t.Helper()
	d0, i0, z0 := ms[0].Digest()
	for k, m := range ms[1:] {
		if d, i, z := m.Digest(); d != d0 || i != i0 || z != z0 {
			t.Fatalf("machine %d: digest %x at %d, %s; machine 0: %x at %d, %s", k+1, d, i, z, d0, i0, z0)
		}
	}
}

func sameResults(t *testing.T, hooks []*recorder) {
	t.Helper()
	for k, h := range hooks[1:] {
		if len(h.results) != len(hooks[0].results) || !reflect.DeepEqual(h.ended, hooks[0].ended) {
			t.Fatalf("machine %d told its hook other things", k+1)
		}
		for i, r := range h.results {
			w := hooks[0].results[i]
			if r.Status != w.Status || r.Zxid != w.Zxid || fmt.Sprint(r.Err) != fmt.Sprint(w.Err) || r.Digest() != w.Digest() {
				t.Fatalf("machine %d: result %+v, machine 0: %+v", k+1, r, w)
			}
			if !reflect.DeepEqual(h.changes[i], hooks[0].changes[i]) {
				t.Fatalf("machine %d: changes %+v, machine 0: %+v", k+1, h.changes[i], hooks[0].changes[i])
			}
		}
	}
}

func encode(t *testing.T, m *Machine) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.Snapshot().Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func restored(t *testing.T, m *Machine, h Hook) *Machine {
	t.Helper()
	b := encode(t, m)
	n := New(Options{Hook: h})
	if err := n.Restore(bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	if again := encode(t, n); !bytes.Equal(again, b) {
		t.Fatal("a restored machine writes another snapshot than it was restored from")
	}
	return n
}
