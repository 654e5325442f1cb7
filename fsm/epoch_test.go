package fsm

import (
	"testing"
	"time"

	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

func TestNewEpochOpensOnceInItsTerm(t *testing.T) {
	r := newRig(t)
	if z := r.m.Zxid(); z != zxid.Make(testEpoch, 0) {
		t.Fatalf("first epoch begins at %s", z)
	}
	r.epoch(0)
	if z := r.m.Zxid(); z != zxid.Make(testEpoch+1, 0) || r.m.EpochTerm() != 2 {
		t.Fatalf("the next leader's epoch begins at %s in term %d", z, r.m.EpochTerm())
	}
	s := r.open(1)
	again := r.one(&Command{Kind: CmdNewEpoch, Epoch: &NewEpoch{Term: r.term, Clock: r.clock + 1e9, MinEpoch: 99}})
	r.is(again, StatusRepeat, nil)
	if z := r.m.Zxid(); z != zxid.ID(s.info.ID) || r.m.state.Clock != startClock {
		t.Fatalf("a second NewEpoch of the term moved the state to %s, clock %d", z, r.m.state.Clock)
	}
}

func TestNewEpochOfAnotherTermOpensNothing(t *testing.T) {
	r := newRig(t)
	r.term = 3
	res := r.one(&Command{Kind: CmdNewEpoch, Epoch: &NewEpoch{Term: 2, Clock: r.clock + 1, MinEpoch: 50}})
	r.is(res, StatusAgain, ErrOutdated)
	if r.m.EpochTerm() != 1 || r.m.state.Clock != startClock {
		t.Fatal("it was taken")
	}
}

func TestMinEpochRaisesAndNeverLowers(t *testing.T) {
	r := newRig(t)
	r.epoch(3)
	if e := r.m.Zxid().Epoch(); e != testEpoch+1 {
		t.Fatalf("a smaller MinEpoch led to epoch %d", e)
	}
	r.epoch(1000)
	if e := r.m.Zxid().Epoch(); e != 1000 {
		t.Fatalf("MinEpoch 1000 led to epoch %d", e)
	}
}

func TestEpochsEndAtTheLastOneWithoutGoingBack(t *testing.T) {
	r := newRig(t)
	r.epoch(1<<32 - 1)
	if e := r.m.Zxid().Epoch(); e != zxid.MaxEpoch {
		t.Fatalf("epoch %d", e)
	}
	a := r.open(1)
	r.epoch(0)
	b := r.open(2)
	if b.info.ID <= a.info.ID || int64(b.info.ID) < 0 {
		t.Fatalf("ids went from %s to %s", a.info.ID, b.info.ID)
	}
}

func TestClusterIDIsThatOfTheFirstEpoch(t *testing.T) {
	r := newRig(t)
	r.term++
	r.done(&Command{Kind: CmdNewEpoch, Epoch: &NewEpoch{Term: r.term, ClusterID: "other"}})
	if id := r.m.state.ClusterID; id != "c-1" {
		t.Fatalf("cluster id %q", id)
	}
}

func TestNothingIsDoneInATermWhoseEpochIsNotOpen(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	r.term++
	r.clock += 5000
	before := r.digest()
	cmds := []*Command{
		c.write(create("/a")),
		c.next(&Command{Kind: CmdClose}),
		c.next(&Command{Kind: CmdSkip, Code: CodeCancelled}),
		c.next(&Command{Kind: CmdIdentities}),
		r.onServer(&Command{Kind: CmdOpen, Open: openOf(2)}),
		r.onServer(&Command{Kind: CmdAttach, Attach: &Attach{Session: c.info.ID, Secret: c.info.Secret, Connection: 2}}),
		{Kind: CmdBoot, Boot: &Boot{Server: "n2~1", Nonce: 1}},
		{Kind: CmdExpire, Expire: &Expire{Session: c.info.ID, Generation: 1, Touched: c.session().Touched, Term: r.term}},
		{Kind: CmdSuspect, Expire: &Expire{Session: c.info.ID, Generation: 1, Touched: c.session().Touched, Term: r.term, Silent: time.Second}},
		{Kind: CmdUnsuspect, Expire: &Expire{Session: c.info.ID, Term: r.term}},
		{Kind: CmdReap, Term: r.term, Reap: []znode.Reap{{Path: "/a"}}},
		{Kind: CmdTrim, Trim: []Trim{{c.info.ID, 9}}},
		{Kind: CmdKill, Kill: &Kill{Session: c.info.ID}},
		{Kind: CmdFeature, Term: r.term, Feature: 1},
		{Kind: CmdRemoveServer, Term: r.term, Server: testServer},
	}
	for i, res := range r.entry(cmds...) {
		r.is(res, StatusAgain, ErrOutdated)
		if len(r.hook.changes[len(r.hook.changes)-len(cmds)+i]) != 0 {
			t.Fatalf("%s changed the tree", res.Kind)
		}
	}
	if r.digest() != before {
		t.Fatal("the state changed")
	}
	if r.m.Index() != r.index {
		t.Fatal("the entry was not counted as applied")
	}
}

func TestClockNeverGoesBack(t *testing.T) {
	r := newRig(t)
	r.clock = startClock + 100
	r.entry()
	if r.m.state.Clock != startClock+100 {
		t.Fatalf("an entry did not move the clock: %d", r.m.state.Clock)
	}
	r.clock = startClock + 50
	r.entry()
	if r.m.state.Clock != startClock+100 {
		t.Fatalf("an entry moved the clock back to %d", r.m.state.Clock)
	}
	r.clock = startClock - 1000
	r.epoch(0)
	if r.m.state.Clock != startClock+100 {
		t.Fatalf("a new leader moved the clock back to %d", r.m.state.Clock)
	}
	r.clock = startClock + 900
	r.epoch(0)
	if r.m.state.Clock != startClock+900 {
		t.Fatalf("a new leader did not move the clock: %d", r.m.state.Clock)
	}
}

func TestWhatTakesATransactionID(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	z := r.m.Zxid()
	takes := func(what string, want bool, cmd *Command) *Result {
		t.Helper()
		res := r.one(cmd)
		if took := r.m.Zxid() != z; took != want {
			t.Fatalf("%s: took a transaction id: %v", what, took)
		}
		if want && (res.Zxid != z.Next() || r.m.Zxid() != z.Next()) {
			t.Fatalf("%s: result says %s, machine %s, after %s", what, res.Zxid, r.m.Zxid(), z)
		}
		if !want && res.Status == StatusDone && res.Zxid != 0 {
			t.Fatalf("%s: result names %s", what, res.Zxid)
		}
		z = r.m.Zxid()
		return res
	}
	w := c.write(create("/a"))
	takes("write", true, w)
	takes("repeat", false, w)
	takes("failed write", true, c.write(create("/a")))
	takes("multi", true, c.write(set("/a", "1"), set("/a", "2"), create("/b")))
	takes("failed multi", true, c.write(set("/a", "1"), create("/b")))
	takes("write past a bound", true, c.write(set("/a", string(make([]byte, MaxDataBytes+1)))))
	takes("skip", false, c.next(&Command{Kind: CmdSkip, Code: CodeTooLarge}))
	takes("identities", false, c.next(&Command{Kind: CmdIdentities}))
	takes("gap", false, &Command{Kind: CmdWrite, Line: c.line(), Seq: c.seq + 2, Write: &Write{Ops: []znode.Op{create("/g")}}})
	takes("moved", false, &Command{Kind: CmdWrite, Line: LineRef{Session: c.info.ID, Generation: 9}, Seq: c.seq + 1, Write: &Write{}})
	takes("attach", false, r.onServer(&Command{Kind: CmdAttach, Attach: &Attach{Session: c.info.ID, Secret: c.info.Secret, Connection: 2}}))
	c.gen = 2
	takes("boot", false, &Command{Kind: CmdBoot, Boot: &Boot{Server: "n2~1", Nonce: 1}})
	takes("trim", false, r.onServer(&Command{Kind: CmdTrim, Trim: []Trim{{c.info.ID, 1}}}))
	open := r.onServer(&Command{Kind: CmdOpen, Open: openOf(2)})
	takes("open", true, open)
	takes("repeated open", false, r.onServer(&Command{Kind: CmdOpen, Open: openOf(2)}))
	watch := &Expire{Session: c.info.ID, Generation: 2, Touched: c.session().Touched, Term: r.term}
	mark := *watch
	mark.Silent = time.Second
	takes("suspect", false, &Command{Kind: CmdSuspect, Expire: &mark})
	takes("unsuspect", false, &Command{Kind: CmdUnsuspect, Expire: watch})
	stale := *watch
	stale.Touched--
	takes("refused expiry", false, &Command{Kind: CmdExpire, Expire: &stale})
	takes("reap", true, &Command{Kind: CmdReap, Term: r.term, Reap: []znode.Reap{{Path: "/none"}}})
	takes("expiry", true, &Command{Kind: CmdExpire, Expire: watch})
	other := r.m.state.Sessions.ByOpenNonce(nonce(2)).ID
	takes("close", true, &Command{Kind: CmdClose, Line: LineRef{Session: other, Generation: 1}, Seq: 1})
	takes("repeated close", false, &Command{Kind: CmdClose, Line: LineRef{Session: other, Generation: 1}, Seq: 1})
	third := r.open(3)
	z = r.m.Zxid()
	takes("kill", true, &Command{Kind: CmdKill, Kill: &Kill{Session: third.info.ID}})
	takes("kill of a session that is gone", false, &Command{Kind: CmdKill, Kill: &Kill{Session: third.info.ID}})
}

func TestCounterOverflowOpensTheNextEpochWithoutPause(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	r.done(c.write(create("/a")))
	r.m.state.Zxid = zxid.Make(testEpoch, 1<<32-100)
	var cmds []*Command
	for range 200 {
		cmds = append(cmds, c.write(set("/a", "x")))
	}
	last := r.m.state.Zxid
	for _, res := range r.entry(cmds...) {
		r.is(res, StatusDone, nil)
		if res.Zxid <= last {
			t.Fatalf("%s after %s", res.Zxid, last)
		}
		last = res.Zxid
	}
	if last.Epoch() != testEpoch+1 || r.m.EpochTerm() != 1 {
		t.Fatalf("ended at %s, term %d", last, r.m.EpochTerm())
	}
	// The leader's own commands still count as its own.
	res := r.one(&Command{Kind: CmdSuspect, Expire: &Expire{Session: c.info.ID, Generation: 1, Touched: c.session().Touched, Term: 1, Silent: 1}})
	r.is(res, StatusDone, nil)
	r.epoch(0)
	if e := r.m.Zxid().Epoch(); e != testEpoch+2 {
		t.Fatalf("the next leader opened epoch %d", e)
	}
}

func TestUsedUpTransactionIDsStopTheReplica(t *testing.T) {
	r := newRig(t)
	r.m.state.Zxid = maxZxid - 3
	r.index++
	if err := r.m.ApplyEntry(r.index, r.term, encodeEntry(r.clock)); err == nil {
		t.Fatal("applied")
	}
}
