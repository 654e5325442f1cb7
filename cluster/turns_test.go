package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

// bigCmd is a write of about size bytes.
func bigCmd(l fsm.LineRef, seq uint64, size int) []byte {
	op := createOp(fmt.Sprintf("/n%d", seq))
	op.Data = make([]byte, size)
	return fsm.AppendCommand(nil, &fsm.Command{Kind: fsm.CmdWrite, Line: l, Seq: seq, Write: &fsm.Write{Ops: []znode.Op{op}}})
}

func lineOf(id int) fsm.LineRef { return fsm.LineRef{Session: session.ID(id), Generation: 1} }

func nobody() Waiter { return WaiterFunc(func(*fsm.Result) {}) }

// TestReleaseIsSentBeforeTheFlood: what a session sends now and then waits for one
// message, whatever others have waiting.
func TestReleaseIsSentBeforeTheFlood(t *testing.T) {
	f := newTestForwarder()
	for id := 1; id <= 10; id++ {
		for seq := range uint64(100) {
			f.submit(lineOf(id), seq+1, bigCmd(lineOf(id), seq+1, 100<<10), nobody())
		}
	}
	for range 3 {
		f.take() // the floods have had their first turn
	}
	f.submit(lineOf(99), 1, skipCmd(lineOf(99), 1), nobody())
	var first fsm.Command
	if err := fsm.DecodeCommand(f.take()[0], &first); err != nil || first.Line != lineOf(99) {
		t.Errorf("first in the next message is %v (%v), want the one command of the quiet session", first.Line, err)
	}
}

// TestFloodsShareInEqualParts: by bytes, not by commands.
func TestFloodsShareInEqualParts(t *testing.T) {
	f := newTestForwarder()
	sizes := []int{200, 5_000, 100_000}
	for i, size := range sizes {
		for seq := range uint64(20_000_000 / size) {
			f.submit(lineOf(i+1), seq+1, bigCmd(lineOf(i+1), seq+1, size), nobody())
		}
	}
	var sent [4]int
	for total := 0; total < 10_000_000; {
		for _, b := range f.take() {
			var c fsm.Command
			if err := fsm.DecodeCommand(b, &c); err != nil {
				t.Fatal(err)
			}
			sent[c.Line.Session] += len(b)
			total += len(b)
		}
	}
	for _, n := range sent[1:] {
		if n < 2_500_000 || n > 4_500_000 {
			t.Errorf("of 10 MB the three sent %v bytes", sent[1:])
			break
		}
	}
}

// TestSessionThatComesAndGoesDoesNotKeepOthersOut: many that send one command after
// the other are not always first.
func TestSessionThatComesAndGoesDoesNotKeepOthersOut(t *testing.T) {
	f := newTestForwarder()
	f.submit(lineOf(1), 1, bigCmd(lineOf(1), 1, 100<<10), nobody())
	f.submit(lineOf(1), 2, skipCmd(lineOf(1), 2), nobody())
	for id := 2; id < 4_000; id++ { // more than a message takes
		f.submit(lineOf(id), 1, bigCmd(lineOf(id), 1, 150), nobody())
	}
	for range 100 {
		for _, b := range f.take() {
			var c fsm.Command
			if err := fsm.DecodeCommand(b, &c); err != nil {
				t.Fatal(err)
			}
			if c.Line == lineOf(1) {
				if c.Seq == 2 {
					return
				}
				continue
			}
			f.applied(result(c, fsm.StatusDone))
			f.submit(c.Line, c.Seq+1, bigCmd(c.Line, c.Seq+1, 150), nobody())
		}
	}
	t.Error("a hundred messages went by without a place for one command")
}

// TestOneThatTakesAllLeavesHalf: who has little unanswered always finds room.
func TestOneThatTakesAllLeavesHalf(t *testing.T) {
	f := newTestForwarder()
	flood := func(id int) (n int) {
		for ; f.crowdedSession(session.ID(id), 1) == nil; n++ {
			f.submit(lineOf(id), uint64(n+1), bigCmd(lineOf(id), uint64(n+1), 1<<20), nobody())
		}
		return n << 20
	}
	first, second := flood(1), flood(2)
	if first < maxPendingBytes*4/10 || first > maxPendingBytes*6/10 || second < maxPendingBytes/5 || second > maxPendingBytes*3/10 {
		t.Errorf("of %d MiB the first had %d and the second %d", maxPendingBytes>>20, first>>20, second>>20)
	}
	if err := f.crowdedSession(3, 1); err != nil {
		t.Errorf("a session without anything unanswered: %v", err)
	}
	if err := f.crowdedOwn(); err != nil {
		t.Errorf("the server itself: %v", err)
	}
	for id := 3; f.crowdedSession(session.ID(id), 1) == nil; id++ {
		if flood(id); id > 200 {
			t.Fatal("there is always room")
		}
	}
	if count, size := f.load(); size > maxPendingBytes+2<<20 {
		t.Errorf("%d commands of %d bytes are pending, the bound is %d", count, size, maxPendingBytes)
	}
}

// TestQueueThatStandsIsCutShort: if everything waits for long, less is let in, and
// who is refused hears how long it takes; one quick answer ends that.
func TestQueueThatStandsIsCutShort(t *testing.T) {
	now := time.Duration(1)
	f := newForwarder("n1~0000000000000001", 9, func() time.Duration { return now })
	a := answers{}
	answer := func(seq uint64, after time.Duration) {
		a.submit(f, testLine, seq)
		now += after
		f.applied(&fsm.Result{Line: testLine, Seq: seq, Status: fsm.StatusDone})
	}
	for seq := range uint64(maxPendingBytes/crowdShrink>>20) + 1 {
		f.submit(lineOf(7), seq+1, bigCmd(lineOf(7), seq+1, 1<<20), nobody())
	}
	for seq := range uint64(3) {
		answer(seq+1, 2*time.Second)
	}
	var err *OverloadedError
	if !errors.As(f.crowdedSession(8, 1), &err) || err.RetryAfter < time.Second || err.RetryAfter > retryMost {
		t.Fatalf("with a queue of 2 s: %v", err)
	}
	answer(4, time.Millisecond)
	if err := f.crowdedSession(8, 1); err != nil {
		t.Errorf("after a quick answer: %v", err)
	}
}

// TestLineThatIsAnsweredIsForgotten: servers see many sessions come and go.
func TestLineThatIsAnsweredIsForgotten(t *testing.T) {
	f := newTestForwarder()
	for id := 1; id <= 100; id++ {
		f.submit(lineOf(id), 1, skipCmd(lineOf(id), 1), nobody())
	}
	for _, c := range offered(t, f) {
		f.applied(result(c, fsm.StatusDone))
	}
	f.submit(lineOf(1), 2, skipCmd(lineOf(1), 2), nobody())
	f.submit(lineOf(2), 2, skipCmd(lineOf(2), 2), nobody())
	f.applied(&fsm.Result{Line: lineOf(2), Seq: 2, Status: fsm.StatusDone}) // a copy was quicker
	for _, c := range offered(t, f) {
		f.applied(result(c, fsm.StatusDone))
	}
	if len(f.sessions) != 0 {
		t.Errorf("%d lines are remembered", len(f.sessions))
	}
}

func TestFifoKeepsTheOrder(t *testing.T) {
	var q fifo[int]
	in, out := 0, 0
	for round := range 200 {
		for range 1 + round%7 {
			q.push(in)
			in++
		}
		for range round % 6 {
			if q.len() == 0 {
				break
			}
			if q.front() != out {
				t.Fatalf("%d came, want %d", q.front(), out)
			}
			q.pop()
			out++
		}
	}
	if q.len() != in-out {
		t.Errorf("%d are left of %d", q.len(), in-out)
	}
}
