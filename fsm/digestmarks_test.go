package fsm

import (
	"bytes"
	"fmt"
	"testing"
	"time"
)

func TestMarksAreAtTheSamePlacesWhateverAReplicaSees(t *testing.T) {
	write := func(i uint64) []byte {
		return encodeEntry(int64(i), &Command{Kind: CmdBoot, Boot: &Boot{Server: fmt.Sprintf("n%d", i), Nonce: i}})
	}
	run := func(m *Machine, from, to uint64, noops ...uint64) {
		for i := from; i <= to; i++ {
			skip := false
			for _, n := range noops {
				skip = skip || n == i
			}
			if skip {
				continue
			}
			if i == 1 {
				mustApply(t, m, i, encodeEntry(0, &Command{Kind: CmdNewEpoch, Epoch: &NewEpoch{Term: 1}}))
				continue
			}
			mustApply(t, m, i, write(i))
		}
	}
	const end = 5*MarkEvery + 3
	holes := []uint64{MarkEvery, 2*MarkEvery - 1, 2 * MarkEvery, 2*MarkEvery + 1, 4*MarkEvery + 1}
	a, b := New(Options{}), New(Options{})
	run(a, 1, end, holes...)
	run(b, 1, 2*MarkEvery+9, holes...)
	var image bytes.Buffer
	if err := b.Snapshot().Encode(&image); err != nil {
		t.Fatal(err)
	}
	restored := New(Options{})
	if err := restored.Restore(&image); err != nil {
		t.Fatal(err)
	}
	run(restored, 2*MarkEvery+10, end, holes...)
	all := a.Marks(0, 100)
	if len(all) != 5 {
		t.Fatalf("marks %v, want 5", all)
	}
	for i, m := range all {
		if m.Index != uint64(i+1)*MarkEvery || i > 0 && m.Digest == all[i-1].Digest {
			t.Errorf("mark %d: %+v", i, m)
		}
	}
	got := restored.Marks(0, 100)
	if len(got) != 3 || got[0] != all[2] || got[1] != all[3] || got[2] != all[4] {
		t.Errorf("restored from a snapshot it has %v, the others %v", got, all[2:])
	}
	if m, ok := a.MarkAt(3 * MarkEvery); !ok || m != all[2] {
		t.Errorf("mark at %d: %v %v", 3*MarkEvery, m, ok)
	}
	if got := a.Marks(3*MarkEvery, 1); len(got) != 1 || got[0] != all[4] {
		t.Errorf("the newest one behind the third: %v", got)
	}
}

func mustApply(t testing.TB, m *Machine, index uint64, entry []byte) {
	t.Helper()
	if err := m.ApplyEntry(index, 1, entry); err != nil {
		t.Fatal(err)
	}
}

func TestMarksOfAReplacedStateAreForgotten(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	for i := range 2 * MarkEvery {
		r.done(c.write(create(fmt.Sprintf("/n%d", i))))
	}
	if len(r.m.Marks(0, 10)) != 2 {
		t.Fatalf("marks %v", r.m.Marks(0, 10))
	}
	if err := r.m.Restore(bytes.NewReader(r.snapshot())); err != nil {
		t.Fatal(err)
	}
	if got := r.m.Marks(0, 10); len(got) != 0 {
		t.Errorf("marks %v of a state that is gone", got)
	}
}

func TestMarksAreBounded(t *testing.T) {
	m := New(Options{})
	for i := range uint64(5 * keptMarks) {
		m.marks.add(Mark{Index: (i + 1) * MarkEvery, Digest: i})
	}
	if n := len(m.Marks(0, 1<<20)); n != keptMarks {
		t.Errorf("%d marks are given, want %d", n, keptMarks)
	}
	if n := len(m.marks.ring); n > 2*keptMarks {
		t.Errorf("%d marks are kept", n)
	}
}

// BenchmarkApplyWithMarks applies single writes of 64 sessions, one to an entry,
// which is the dearest case: each mark has to digest every session that wrote
// since the last one. marks-% is the part of the time that the marks take.
func BenchmarkApplyWithMarks(b *testing.B) {
	r := newRig(b)
	var clients []*client
	for i := range MarkEvery {
		c := r.open(i + 1)
		clients = append(clients, c)
		r.done(c.write(create(fmt.Sprintf("/n%d", i))))
	}
	var marks time.Duration
	b.ResetTimer()
	for i := range b.N {
		c := clients[i%len(clients)]
		entry := encodeEntry(r.clock, c.write(set(fmt.Sprintf("/n%d", i%len(clients)), "x")))
		r.index++
		start := time.Now()
		if err := r.m.ApplyEntry(r.index, r.term, entry); err != nil {
			b.Fatal(err)
		}
		if r.index%MarkEvery == 0 {
			marks += time.Since(start)
		}
	}
	b.ReportMetric(100*float64(marks)/float64(b.Elapsed()), "marks-%")
}
