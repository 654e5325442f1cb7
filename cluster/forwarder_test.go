package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

var testLine = fsm.LineRef{Session: 5, Generation: 1}

func newTestForwarder() *forwarder {
	f := newForwarder("n1~0000000000000001", 9, testClock())
	f.setBooted()
	return f
}

// testClock is the time since it was made.
func testClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

func skipCmd(l fsm.LineRef, seq uint64) []byte {
	return fsm.AppendCommand(nil, &fsm.Command{Kind: fsm.CmdSkip, Line: l, Seq: seq, Code: fsm.CodeCancelled})
}

// answers counts what a waiter is told.
type answers map[uint64][]fsm.Status

func (a answers) waiter(seq uint64) Waiter {
	return WaiterFunc(func(r *fsm.Result) { a[seq] = append(a[seq], r.Status) })
}

func (a answers) submit(f *forwarder, l fsm.LineRef, seqs ...uint64) {
	for _, seq := range seqs {
		f.submit(l, seq, skipCmd(l, seq), a.waiter(seq))
	}
}

// offered takes all that waits to be sent and decodes it.
func offered(t *testing.T, f *forwarder) (out []fsm.Command) {
	t.Helper()
	for cmds := f.take(); len(cmds) > 0; cmds = f.take() {
		for _, b := range cmds {
			var c fsm.Command
			if err := fsm.DecodeCommand(b, &c); err != nil {
				t.Fatal(err)
			}
			out = append(out, c)
		}
	}
	return out
}

func seqs(cmds []fsm.Command) string {
	s := ""
	for _, c := range cmds {
		s += fmt.Sprintf(" %d/%d", c.Seq, c.Attempt)
	}
	return s
}

func result(c fsm.Command, s fsm.Status) *fsm.Result {
	return &fsm.Result{Line: c.Line, Seq: c.Seq, Attempt: c.Attempt, Status: s}
}

func TestOfferingKeepsTheOrderOfTheLine(t *testing.T) {
	f, a := newTestForwarder(), answers{}
	a.submit(f, testLine, 1, 2, 3)
	if got := seqs(offered(t, f)); got != " 1/0 2/0 3/0" {
		t.Errorf("offered%s", got)
	}
	f.reofferAll()
	a.submit(f, testLine, 4)
	if got := seqs(offered(t, f)); got != " 1/1 2/1 3/1 4/1" {
		t.Errorf("offered again%s", got)
	}
}

// F21: a thousand writes behind one hole are a thousand gap answers. Only the
// first may start another offering.
func TestGapsMakeNoStorm(t *testing.T) {
	const n = 1000
	f, a := newTestForwarder(), answers{}
	for i := range uint64(n) {
		a.submit(f, testLine, i+1)
	}
	first := offered(t, f)
	for _, c := range first[1:] { // the first was lost
		f.applied(result(c, fsm.StatusGap))
	}
	second := offered(t, f)
	if len(second) != n || second[0].Seq != 1 || second[0].Attempt != 1 {
		t.Fatalf("%d commands after one lost, want the %d of one new offering", len(second), n)
	}
	for _, c := range first { // the old copies come late
		f.applied(result(c, fsm.StatusGap))
	}
	if again := offered(t, f); len(again) != 0 {
		t.Errorf("gaps of an old offering had %d commands sent", len(again))
	}
	for _, c := range second {
		f.applied(result(c, fsm.StatusDone))
	}
	for i := range uint64(n) {
		if len(a[i+1]) != 1 || a[i+1][0] != fsm.StatusDone {
			t.Fatalf("number %d was told %v", i+1, a[i+1])
		}
	}
	if count, size := f.load(); count != 0 || size != 0 {
		t.Errorf("%d commands of %d bytes are left", count, size)
	}
}

func TestEveryCopyAnswersAndOnlyTheFirstCounts(t *testing.T) {
	f, a := newTestForwarder(), answers{}
	a.submit(f, testLine, 1)
	c := offered(t, f)[0]
	f.reofferAll()
	f.applied(result(c, fsm.StatusDone)) // the copy of the lost leader
	f.applied(result(c, fsm.StatusRepeat))
	if len(a[1]) != 1 || a[1][0] != fsm.StatusDone {
		t.Errorf("told %v", a[1])
	}
	if got := offered(t, f); len(got) != 0 {
		t.Errorf("what was answered is offered:%s", seqs(got))
	}
}

// A skip takes the place of the write that is pending under its number; whatever
// is applied answers both.
func TestSkipOfAPendingNumberAnswersBoth(t *testing.T) {
	f, a := newTestForwarder(), answers{}
	write := fsm.AppendCommand(nil, &fsm.Command{
		Kind: fsm.CmdWrite, Line: testLine, Seq: 1, Write: &fsm.Write{Ops: []znode.Op{createOp("/a")}},
	})
	f.submit(testLine, 1, write, a.waiter(1))
	sent := offered(t, f)
	f.submit(testLine, 1, skipCmd(testLine, 1), a.waiter(100))
	if got := offered(t, f); len(got) != 0 {
		t.Errorf("the skip is sent though the write is under way:%s", seqs(got))
	}
	f.reofferAll()
	if got := offered(t, f); len(got) != 1 || got[0].Kind != fsm.CmdSkip {
		t.Errorf("offered again: %v, want the skip", got)
	}
	f.applied(result(sent[0], fsm.StatusDone))
	if len(a[1]) != 1 || len(a[100]) != 1 {
		t.Errorf("told %v", a)
	}
	if count, size := f.load(); count != 0 || size != 0 {
		t.Errorf("%d commands of %d bytes are left", count, size)
	}
}

func TestNumbersThatWereNeverSubmittedEndTheLine(t *testing.T) {
	f, a := newTestForwarder(), answers{}
	a.submit(f, testLine, 5) // 1 to 4 are missing
	f.applied(result(offered(t, f)[0], fsm.StatusGap))
	if len(a[5]) != 1 || a[5][0] != fsm.StatusGap {
		t.Errorf("told %v, want the gap", a[5])
	}
	if got := offered(t, f); len(got) != 0 {
		t.Errorf("it is offered for ever:%s", seqs(got))
	}
}

func TestDroppedLineIsForgotten(t *testing.T) {
	f, a := newTestForwarder(), answers{}
	a.submit(f, testLine, 1, 2)
	other := fsm.LineRef{Session: 5, Generation: 2}
	a.submit(f, other, 3)
	f.drop(session.ID(5), 1)
	got := offered(t, f)
	if len(got) != 1 || got[0].Line != other {
		t.Errorf("offered after the drop: %v", got)
	}
	f.applied(&fsm.Result{Line: testLine, Seq: 1})
	if len(a[1]) != 0 {
		t.Error("the waiter of a dropped line was told")
	}
	if count, _ := f.load(); count != 1 {
		t.Errorf("%d commands are pending, want 1", count)
	}
}

func TestOwnLineIsNotOfferedBeforeItsBoot(t *testing.T) {
	f := newForwarder("n1~0000000000000001", 9, testClock())
	if f.boots() == nil {
		t.Error("there is no Boot to offer")
	}
	f.propose(&fsm.Command{Kind: fsm.CmdSkip, Code: fsm.CodeCancelled}, nil)
	f.reofferAll()
	if got := offered(t, f); len(got) != 0 {
		t.Errorf("offered before the line has begun:%s", seqs(got))
	}
	f.setBooted()
	got := offered(t, f)
	if len(got) != 1 || got[0].Seq != 1 || got[0].Line.Boot != 9 || f.boots() != nil {
		t.Errorf("offered %v", got)
	}
}

func TestOwnLineAcknowledgesWhatIsAnswered(t *testing.T) {
	f := newTestForwarder()
	for range 3 {
		f.propose(&fsm.Command{Kind: fsm.CmdSkip, Code: fsm.CodeCancelled}, nil)
	}
	sent := offered(t, f)
	f.applied(result(sent[0], fsm.StatusDone))
	f.applied(result(sent[2], fsm.StatusDone)) // 2 is not answered
	f.propose(&fsm.Command{Kind: fsm.CmdSkip, Code: fsm.CodeCancelled}, nil)
	if got := offered(t, f)[0]; got.Seq != 4 || got.Ack != 1 {
		t.Errorf("number %d acknowledges %d, want 4 and 1", got.Seq, got.Ack)
	}
}

// The rule against a slow and obvious network: any loss, repetition and order of
// copies between offerings, and the state applies by number. Every write is done
// once, in order, and answered once.
func TestRandomLossesAndRepeatsAreDoneOnceInOrder(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		f, a := newTestForwarder(), answers{}
		next, done := uint64(1), []uint64(nil)
		apply := func(c fsm.Command) {
			switch {
			case c.Seq == next:
				done = append(done, c.Seq)
				next++
				f.applied(result(c, fsm.StatusDone))
			case c.Seq < next:
				f.applied(result(c, fsm.StatusRepeat))
			default:
				f.applied(result(c, fsm.StatusGap))
			}
		}
		var wire []fsm.Command
		submitted := uint64(0)
		const total = 60
		for step := 0; next <= total; step++ {
			if step > 100_000 {
				t.Fatalf("seed %d: stuck at %d of %d", seed, next, total)
			}
			switch rng.IntN(6) {
			case 0:
				if submitted < total {
					submitted++
					a.submit(f, testLine, submitted)
				}
			case 1:
				wire = append(wire, offered(t, f)...)
			case 2:
				if rng.IntN(20) == 0 { // a new leader; what is under way may be lost
					wire = wire[:rng.IntN(len(wire)+1)]
					f.reofferAll()
				}
			default:
				if len(wire) == 0 {
					break
				}
				c := wire[0]
				if rng.IntN(4) > 0 {
					wire = wire[1:] // else it comes again
				}
				if rng.IntN(10) > 0 {
					apply(c)
				} else if len(wire) == 0 {
					f.reofferAll() // the last of a stream is lost only with the stream
				}
			}
			if len(wire) == 0 && submitted == total && next <= total {
				f.reofferAll()
			}
		}
		for i, seq := range done {
			if seq != uint64(i+1) {
				t.Fatalf("seed %d: done in the order %v", seed, done)
			}
		}
		for seq := range uint64(total) {
			if len(a[seq+1]) != 1 {
				t.Fatalf("seed %d: number %d was told %v", seed, seq+1, a[seq+1])
			}
		}
	}
}

// F21: what a server offers must not enter the log out of order, so the newer of
// two streams is read only when the older is not read any more.
func TestNewerStreamIsReadOnlyWhenTheOlderHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in intake
		old, cancelOld := context.WithCancel(t.Context())
		endOld, err := in.begin(old, "n1~0000000000000001", cancelOld)
		if err != nil {
			t.Fatal(err)
		}
		begun := make(chan time.Duration, 1)
		start := time.Now()
		go func() {
			ctx, cancel := context.WithCancel(t.Context())
			end, err := in.begin(ctx, "n1~0000000000000001", cancel)
			if err != nil {
				t.Error(err)
			}
			begun <- time.Since(start)
			end()
		}()
		synctest.Wait()
		if !errors.Is(old.Err(), context.Canceled) {
			t.Error("the older stream was not ended")
		}
		time.Sleep(time.Second) // its reader is still busy with its last message
		endOld()
		if waited := <-begun; waited < time.Second {
			t.Errorf("the newer one was read after %v", waited)
		}
		synctest.Wait()
		if len(in.current) != 0 {
			t.Errorf("%d streams are remembered", len(in.current))
		}
	})
}
