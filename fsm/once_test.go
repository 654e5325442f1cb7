package fsm

import (
	"errors"
	"reflect"
	"testing"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

func TestEachNumberIsDoneOnceAndInOrder(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	a, b, d := c.write(create("/a")), c.write(set("/a", "b")), c.write(set("/a", "d"))
	r.is(r.one(b), StatusGap, ErrGap)
	r.is(r.one(d), StatusGap, ErrGap)
	if r.exists("/a") {
		t.Fatal("a gapped write was done")
	}
	first := r.done(a)
	r.is(r.one(d), StatusGap, ErrGap)
	r.done(b)
	r.done(d)
	again := r.is(r.one(a), StatusRepeat, nil)
	if again.Zxid != first.Zxid || !reflect.DeepEqual(again.Ops, first.Ops) {
		t.Fatalf("repeat: %+v, first: %+v", again, first)
	}
	if _, st, _ := r.m.state.Tree.Get("/a", &znode.Caller{Trusted: true}); st.Version != 2 {
		t.Fatalf("version %d after two sets", st.Version)
	}
}

func TestRepeatedRefusalIsTheSameRefusal(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	w := c.write(set("/missing", "x"))
	r.refused(w, znode.ErrNoNode)
	r.done(c.write(create("/missing")))
	r.is(r.one(w), StatusRepeat, znode.ErrNoNode)
}

func TestResultsCarryLineNumberAndAttemptOfTheOffering(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	w := c.write(create("/a"))
	w.Attempt = 1
	r.done(w)
	w.Attempt = 7
	res := r.one(w)
	if res.Attempt != 7 || res.Seq != 1 || res.Line != c.line() || res.Kind != CmdWrite {
		t.Fatalf("%+v", res)
	}
}

func TestAckedAnswersAreDroppedAndSaidSo(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	a, b := c.write(create("/a")), c.write(create("/b"))
	r.entry(a, b)
	d := c.write(create("/d"))
	d.Ack = 1
	r.done(d)
	r.is(r.one(a), StatusAcknowledged, session.ErrAcknowledged)
	r.is(r.one(b), StatusRepeat, nil)
}

func TestAckCountsFromRepeatedAndGappedCommandsAndNeverFalls(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	a, b, d := c.write(create("/a")), c.write(create("/b")), c.write(create("/d"))
	r.entry(a, b, d)
	acked := func() uint64 { return c.session().Line.Acked() }

	d.Ack = 1
	r.is(r.one(d), StatusRepeat, nil)
	if acked() != 1 {
		t.Fatalf("repeat with ack 1: %d", acked())
	}
	gap := &Command{Kind: CmdWrite, Line: c.line(), Seq: 99, Ack: 2, Write: &Write{Ops: []znode.Op{create("/x")}}}
	r.is(r.one(gap), StatusGap, ErrGap)
	if acked() != 2 {
		t.Fatalf("gap with ack 2: %d", acked())
	}
	d.Ack = 1
	r.one(d)
	if acked() != 2 {
		t.Fatalf("a smaller ack lowered it to %d", acked())
	}
	gap.Ack = 1 << 60
	r.one(gap)
	if acked() != 3 {
		t.Fatalf("an ack of the future counted as %d", acked())
	}
	if n, bytes := c.session().Line.Unacked(); n != 0 || bytes != 0 {
		t.Fatalf("%d answers, %d bytes are kept", n, bytes)
	}
}

func TestSkipTakesTheNumberAndIsRemembered(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	skip := c.next(&Command{Kind: CmdSkip, Code: CodeTooLarge})
	r.refused(skip, ErrTooLarge)
	r.is(r.one(skip), StatusRepeat, ErrTooLarge)
	// The write itself, arriving late, is certainly not done any more.
	late := &Command{Kind: CmdWrite, Line: c.line(), Seq: 1, Write: &Write{Ops: []znode.Op{create("/late")}}}
	r.is(r.one(late), StatusRepeat, ErrTooLarge)
	if r.exists("/late") {
		t.Fatal("a skipped write was done")
	}
	r.done(c.write(create("/next")))
}

func TestSkipOfADoneWriteGivesItsAnswer(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	first := r.done(c.write(create("/a")))
	skip := &Command{Kind: CmdSkip, Line: c.line(), Seq: 1, Code: CodeCancelled}
	res := r.is(r.one(skip), StatusRepeat, nil)
	if res.Zxid != first.Zxid || res.Kind != CmdWrite || len(res.Ops) != 1 {
		t.Fatalf("%+v", res)
	}
}

func TestSkipWithoutAReasonIsACancel(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	r.refused(c.next(&Command{Kind: CmdSkip}), ErrCancelled)
}

func TestGenerationIsAskedBeforeTheNumber(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	a := c.write(create("/a"))
	r.done(a)
	r.done(r.onServer(&Command{Kind: CmdAttach, Attach: &Attach{
		Session: c.info.ID, Secret: c.info.Secret, Connection: 2, Server: testServer, Boot: testBoot,
	}}))
	a.Ack = 1
	r.is(r.one(a), StatusMoved, session.ErrMoved)
	if c.session().Line.Acked() != 0 {
		t.Fatal("the ack of a left connection was taken")
	}
	b := c.write(create("/b")) // still of generation 1
	r.is(r.one(b), StatusMoved, session.ErrMoved)
	if r.exists("/b") {
		t.Fatal("a write of a left connection was done")
	}
	b.Line.Generation = 2
	r.done(b)
}

func TestZooKeeperSessionsRememberNoAnswers(t *testing.T) {
	r := newRig(t)
	o := openOf(1)
	o.Protocol = session.ZooKeeper
	c := r.openWith(o)
	a := c.write(create("/a"))
	r.done(a)
	r.is(r.one(a), StatusRepeat, session.ErrUnknownOutcome)
	if n, _ := c.session().Line.Unacked(); n != 0 {
		t.Fatalf("%d answers kept", n)
	}
	r.done(c.write(create("/b")))
}

func TestOutcomeOfWritesOfASessionThatIsGone(t *testing.T) {
	r := newRig(t)
	ends := map[session.EndReason]func(c *client){
		session.Closed: func(c *client) { r.done(c.next(&Command{Kind: CmdClose})) },
		session.Killed: func(c *client) { r.done(&Command{Kind: CmdKill, Kill: &Kill{Session: c.info.ID}}) },
		session.Expired: func(c *client) {
			r.done(&Command{Kind: CmdExpire, Expire: &Expire{Session: c.info.ID, Generation: 1, Touched: c.session().Touched, Term: r.term}})
		},
	}
	for reason, end := range ends {
		c := r.open(int(reason))
		a := c.write(create("/" + reason.String()[:2]))
		r.done(a)
		end(c)
		r.is(r.one(a), StatusGone, session.ErrUnknownOutcome)
		res := r.one(c.write(create("/never")))
		r.is(res, StatusGone, reason.Err())
		if errors.Is(res.Err, session.ErrUnknownOutcome) {
			t.Fatalf("%s: a write that was certainly not done: %v", reason, res.Err)
		}
		if r.exists("/never") {
			t.Fatal("a write of an ended session was done")
		}
	}
	bogus := &Command{Kind: CmdWrite, Line: LineRef{Session: 12345, Generation: 1}, Seq: 1, Write: &Write{}}
	r.is(r.one(bogus), StatusGone, session.ErrUnknownOutcome)
}

func TestRepeatedCloseIsAnsweredAsTheFirst(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	r.done(c.write(create("/a")))
	cl := c.next(&Command{Kind: CmdClose})
	first := r.done(cl)
	r.reborn()
	again := r.is(r.one(cl), StatusRepeat, nil)
	if again.Zxid != first.Zxid || again.Kind != CmdClose {
		t.Fatalf("%+v, first %+v", again, first)
	}
	skip := &Command{Kind: CmdSkip, Line: c.line(), Seq: cl.Seq, Code: CodeCancelled}
	r.is(r.one(skip), StatusRepeat, nil)
}

func TestServerLineStartsAnewWithEachBoot(t *testing.T) {
	r := newRig(t)
	w := func(boot, seq uint64, path string) *Command {
		return &Command{
			Kind: CmdWrite, Line: LineRef{Server: testServer, Boot: boot}, Seq: seq,
			Write: &Write{Trusted: true, Ops: []znode.Op{create(path)}},
		}
	}
	r.done(w(testBoot, 1, "/a"))
	r.is(r.one(w(testBoot, 1, "/a")), StatusRepeat, nil)
	r.is(r.one(w(testBoot, 5, "/x")), StatusGap, ErrGap)
	r.is(r.one(w(78, 1, "/x")), StatusOldBoot, ErrOutdated)

	boot := &Command{Kind: CmdBoot, Boot: &Boot{Server: testServer, Nonce: 78}}
	r.done(boot)
	r.is(r.one(w(testBoot, 2, "/x")), StatusOldBoot, ErrOutdated)
	r.done(w(78, 1, "/b"))
	r.is(r.one(boot), StatusRepeat, nil)
	r.done(w(78, 2, "/c"))

	// A copy of the old boot that comes late must not void the new one.
	r.is(r.one(&Command{Kind: CmdBoot, Boot: &Boot{Server: testServer, Nonce: testBoot}}), StatusOldBoot, ErrOutdated)
	r.done(w(78, 3, "/d"))
	if r.exists("/x") {
		t.Fatal("a write out of turn was done")
	}
}

func TestUnknownServerMustBootFirst(t *testing.T) {
	r := newRig(t)
	c := &Command{Kind: CmdOpen, Line: LineRef{Server: "n9~1", Boot: 1}, Seq: 1, Open: openOf(1)}
	r.is(r.one(c), StatusOldBoot, ErrOutdated)
	r.done(&Command{Kind: CmdBoot, Boot: &Boot{Server: "n9~1", Nonce: 1}})
	r.done(c)
	r.done(&Command{Kind: CmdRemoveServer, Server: "n9~1", Term: r.term})
	r.is(r.one(c), StatusOldBoot, ErrOutdated)
}

func TestServerMayRemoveItsOwnLine(t *testing.T) {
	r := newRig(t)
	r.done(r.onServer(&Command{Kind: CmdRemoveServer, Server: testServer, Term: r.term}))
	if r.m.state.Sessions.ServerLine(testServer) != nil {
		t.Fatal("the line is still there")
	}
}

func TestCommandsOnTheWrongLineAreRefusedWithoutEffect(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	r.boots[testServer] = 1
	onServer := LineRef{Server: testServer, Boot: testBoot}
	wrong := []*Command{
		{Kind: CmdOpen, Line: c.line(), Seq: 1, Open: openOf(2)},
		{Kind: CmdOpen, Open: openOf(2)},
		{Kind: CmdClose, Line: onServer, Seq: 2},
		{Kind: CmdIdentities, Line: onServer, Seq: 2},
		{Kind: CmdWrite, Write: &Write{Ops: []znode.Op{create("/x")}}},
		{Kind: CmdWrite, Line: c.line(), Seq: 0, Write: &Write{Ops: []znode.Op{create("/x")}}},
		{Kind: CmdNewEpoch, Line: onServer, Seq: 2, Epoch: &NewEpoch{Term: r.term}},
		{Kind: CmdTrim, Seq: 3},
	}
	before := r.digest()
	for _, cmd := range wrong {
		r.refused(cmd, ErrMalformed)
	}
	if r.digest() != before {
		t.Fatal("the state changed")
	}
}
