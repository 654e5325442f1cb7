package session

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// answer is a remembered result for tests.
type answer string

func (a answer) Size() int      { return len(a) }
func (a answer) Digest() uint64 { return xxhash.Sum64String(string(a)) }

func TestLineGivesEachNumberItsVerdict(t *testing.T) {
	var l Line
	for seq := uint64(1); seq <= 5; seq++ {
		if v, _ := l.Check(seq); v != Do {
			t.Fatalf("number %d: %s, want do", seq, v)
		}
		l.Record(seq, answer(fmt.Sprint("w", seq)), true)
	}
	l.Ack(2)
	tests := []struct {
		seq   uint64
		want  Verdict
		value Value
	}{
		{0, Acknowledged, nil},
		{1, Acknowledged, nil},
		{2, Acknowledged, nil},
		{3, Repeat, answer("w3")},
		{5, Repeat, answer("w5")},
		{6, Do, nil},
		{7, Gap, nil},
		{1<<64 - 1, Gap, nil},
	}
	for _, tt := range tests {
		if v, got := l.Check(tt.seq); v != tt.want || got != tt.value {
			t.Errorf("number %d: %s %v, want %s %v", tt.seq, v, got, tt.want, tt.value)
		}
	}
	if err := l.check(); err != nil {
		t.Error(err)
	}
}

func TestAcknowledgementIsAMaximum(t *testing.T) {
	var l Line
	for seq := uint64(1); seq <= 4; seq++ {
		l.Record(seq, answer("12345"), true)
	}
	steps := []struct {
		ack, acked uint64
		n, bytes   int
	}{
		{0, 0, 4, 20},
		{3, 3, 1, 5},
		{1, 3, 1, 5},    // an old copy arrives late
		{1000, 4, 0, 0}, // nothing beyond what was used
		{1 << 63, 4, 0, 0},
	}
	for _, s := range steps {
		l.Ack(s.ack)
		if n, b := l.Unacked(); l.Acked() != s.acked || n != s.n || b != s.bytes {
			t.Errorf("after ack %d: acked %d, %d kept, %d bytes; want %d, %d, %d", s.ack, l.Acked(), n, b, s.acked, s.n, s.bytes)
		}
	}
	if v, _ := l.Check(5); v != Do {
		t.Errorf("the next number after an acknowledgement of the future: %s, want do", v)
	}
}

func TestLineOfZooKeeperSessionKeepsNothing(t *testing.T) {
	var l Line
	for seq := uint64(1); seq <= 10_000; seq++ {
		l.Record(seq, answer("x"), false)
	}
	if n, b := l.Unacked(); n != 0 || b != 0 || cap(l.kept) != 0 {
		t.Errorf("%d answers, %d bytes, room for %d, want none", n, b, cap(l.kept))
	}
	if v, _ := l.Check(10_000); v != Forgotten {
		t.Errorf("a number done: %s, want forgotten", v)
	}
	if v, _ := l.Check(10_001); v != Do {
		t.Errorf("the next number: %s, want do", v)
	}
}

func TestAnswerNotKeptBetweenKeptOnes(t *testing.T) {
	var l Line
	l.Record(1, answer("a"), false)
	l.Record(2, answer("b"), true)
	l.Record(3, answer("c"), false)
	l.Record(4, nil, true)
	l.Record(5, answer("e"), true)
	want := []Verdict{Forgotten, Repeat, Forgotten, Forgotten, Repeat}
	for i, w := range want {
		if v, _ := l.Check(uint64(i + 1)); v != w {
			t.Errorf("number %d: %s, want %s", i+1, v, w)
		}
	}
	for ack := uint64(0); ack <= 5; ack++ {
		l.Ack(ack)
		if err := l.check(); err != nil {
			t.Fatalf("after ack %d: %v", ack, err)
		}
	}
}

func TestRecordOfAnotherNumberThanTheNextPanics(t *testing.T) {
	for _, seq := range []uint64{0, 1, 3} {
		var l Line
		l.Record(1, nil, true)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("number %d was recorded although 2 is next", seq)
				}
			}()
			l.Record(seq, nil, true)
		}()
	}
}

// A line whose client acknowledges must not grow, whatever the depth of the
// pipeline, and a burst must be given back.
func TestLineDoesNotGrowWithAge(t *testing.T) {
	for _, depth := range []uint64{1, 7, 64, MaxUnacked} {
		var l Line
		for seq := uint64(1); seq <= 100_000; seq++ {
			if seq > depth {
				l.Ack(seq - depth)
			}
			l.Record(seq, answer("r"), true)
		}
		if limit := 4*int(depth) + 64; cap(l.kept) > limit {
			t.Errorf("depth %d: room for %d answers, want at most %d", depth, cap(l.kept), limit)
		}
		if err := l.check(); err != nil {
			t.Errorf("depth %d: %v", depth, err)
		}
		l.Ack(100_000)
		if cap(l.kept) > 64 {
			t.Errorf("depth %d: idle line still has room for %d answers", depth, cap(l.kept))
		}
	}
}

// What follows explores every interleaving within bounds: a client with a few
// writes, each offered several times, as the write itself or, after its context
// ended, as a skip; every copy in flight may be applied in any order, or be
// lost, and so may its answer. The rule under test is the code of Line.

type offer struct {
	seq  uint64
	skip bool
	ack  uint64 // what the client had when it sent this copy
}

type world struct {
	line    Line
	applied []string // effects, in order
	flight  []offer
	offers  [4]int    // by number
	got     [4]string // what the client was told, by number
}

func (w *world) key() string {
	return fmt.Sprint(w.line.done, w.line.acked, w.line.kept[w.line.head:], w.applied, w.flight, w.offers, w.got)
}

func (w *world) clone() *world {
	c := *w
	c.line = w.line.clone()
	c.applied = slices.Clone(w.applied)
	c.flight = slices.Clone(w.flight)
	return &c
}

// acked is up to where the client has every answer.
func (w *world) acked() uint64 {
	n := uint64(0)
	for n < 3 && w.got[n+1] != "" {
		n++
	}
	return n
}

// apply is what the state machine does with one copy.
func (w *world) apply(o offer) (told string) {
	verdict, v := w.line.Check(o.seq)
	if verdict == Do {
		effect := fmt.Sprint("done ", o.seq)
		if o.skip {
			effect = fmt.Sprint("skipped ", o.seq)
		}
		w.applied = append(w.applied, effect)
		w.line.Record(o.seq, answer(effect), true)
		told = effect
	}
	if verdict == Repeat {
		told = string(v.(answer))
	}
	w.line.Ack(o.ack)
	return told
}

func (w *world) fault() string {
	for i, e := range w.applied {
		if e != fmt.Sprint("done ", i+1) && e != fmt.Sprint("skipped ", i+1) {
			return fmt.Sprintf("not once each in turn: %q", w.applied)
		}
	}
	for seq := 1; seq <= 3; seq++ {
		if w.got[seq] != "" && (len(w.applied) < seq || w.got[seq] != w.applied[seq-1]) {
			return fmt.Sprintf("the client was told %q, true is %q", w.got[seq], w.applied)
		}
	}
	if w.line.acked > w.acked() {
		return "an answer the client has not was dropped"
	}
	if err := w.line.check(); err != nil {
		return err.Error()
	}
	return ""
}

func (w *world) next(maxOffers int) []*world {
	var out []*world
	for seq := 1; seq <= 3; seq++ {
		if w.got[seq] != "" || w.offers[seq] >= maxOffers || seq > 1 && w.offers[seq-1] == 0 {
			continue
		}
		for _, skip := range []bool{false, true} {
			if skip && w.offers[seq] == 0 {
				continue // only what was sent before is skipped
			}
			c := w.clone()
			c.offers[seq]++
			c.flight = append(c.flight, offer{uint64(seq), skip, c.acked()})
			out = append(out, c)
		}
	}
	for i, o := range w.flight {
		lost := w.clone()
		lost.flight = slices.Delete(lost.flight, i, i+1)
		out = append(out, lost)

		silent := lost.clone() // applied, and its answer is lost
		told := silent.apply(o)
		out = append(out, silent)
		if told != "" {
			heard := silent.clone()
			heard.got[o.seq] = told
			out = append(out, heard)
		}
	}
	for _, c := range out {
		slices.SortFunc(c.flight, func(a, b offer) int {
			return slices.Compare([]uint64{a.seq, b2u(a.skip), a.ack}, []uint64{b.seq, b2u(b.skip), b.ack})
		})
	}
	return out
}

func b2u(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func TestNumbersGiveExactlyOnceInOrderInEveryInterleaving(t *testing.T) {
	maxOffers := 2
	seen := map[string]bool{}
	start := &world{}
	seen[start.key()] = true
	settled := 0
	for queue := []*world{start}; len(queue) > 0; {
		w := queue[0]
		queue = queue[1:]
		if f := w.fault(); f != "" {
			t.Fatalf("%s in %s", f, w.key())
		}
		if w.acked() == 3 {
			settled++
		}
		for _, n := range w.next(maxOffers) {
			if k := n.key(); !seen[k] {
				seen[k] = true
				queue = append(queue, n)
			}
		}
	}
	if settled == 0 || len(seen) < 10_000 {
		t.Fatalf("%d states, %d of them with all answers: the model does not explore", len(seen), settled)
	}
	t.Logf("%d states, %d of them with all answers", len(seen), settled)
}

// From any state, offering what is unanswered once more, in order, settles it:
// no number is wedged.
func TestOfferingAgainAlwaysSettles(t *testing.T) {
	for _, pattern := range [][]uint64{{3, 2, 1}, {2, 3}, {1, 3}, {3}, {1, 1, 2, 2, 3, 3}, {2, 1, 3, 2}} {
		w := &world{}
		for _, seq := range pattern {
			w.apply(offer{seq: seq}) // answers are lost
		}
		for seq := uint64(1); seq <= 3; seq++ {
			w.got[seq] = w.apply(offer{seq: seq, ack: w.acked()})
		}
		if w.acked() != 3 || w.fault() != "" {
			t.Errorf("after %v: client has %q, %s", pattern, w.got, w.fault())
		}
	}
}

func BenchmarkLineCheckRecord(b *testing.B) {
	var l Line
	v := Value(answer("result"))
	b.ReportAllocs()
	for i := uint64(1); b.Loop(); i++ {
		if i > 64 {
			l.Ack(i - 64)
		}
		if verdict, _ := l.Check(i); verdict == Do {
			l.Record(i, v, true)
		}
	}
}
