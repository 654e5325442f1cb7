package fsm

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

func TestOpenIsKnownByItsNonce(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	if c.info.ID != session.ID(r.m.Zxid()) || c.info.Next != 1 || c.info.Generation != 1 || c.info.Elsewhere {
		t.Fatalf("%+v", c.info)
	}
	repeat := openOf(1)
	repeat.Secret[0]++ // the second server draws another one
	res := r.is(r.one(r.onServer(&Command{Kind: CmdOpen, Open: repeat})), StatusRepeat, nil)
	if *res.Session != c.info {
		t.Fatalf("repeat gave %+v, first %+v", res.Session, c.info)
	}
	elsewhere := openOf(1)
	elsewhere.Server = "n2~1"
	res = r.one(r.onServer(&Command{Kind: CmdOpen, Open: elsewhere}))
	if res.Session.ID != c.info.ID || !res.Session.Elsewhere || c.session().Server != testServer {
		t.Fatalf("repeat through another server gave %+v", res.Session)
	}
	if r.m.state.Sessions.Len() != 1 {
		t.Fatal("a second session was opened")
	}
}

func TestTakeOverEndsTheNamedSessionInTheSameTransaction(t *testing.T) {
	r := newRig(t)
	o := openOf(1)
	o.Identity = "worker-1"
	old := r.openWith(o)
	r.done(old.write(ephemeral("/b")))
	r.done(old.write(ephemeral("/a")))

	o2 := openOf(2)
	o2.Identity = "worker-1"
	res := r.one(r.onServer(&Command{Kind: CmdOpen, Open: o2}))
	var inUse *session.IdentityError
	if !errors.As(res.Err, &inUse) || inUse.Current != old.info.ID {
		t.Fatalf("without naming it: %v", res.Err)
	}
	o2.Expect = old.info.ID + 1
	r.refused(r.onServer(&Command{Kind: CmdOpen, Open: o2}), session.ErrIdentityInUse)

	o2.Expect = old.info.ID
	r.hook.reset()
	young := r.openWith(o2)
	changes := r.hook.changes[0]
	if len(changes) != 2 || changes[0].Path != "/a" || changes[1].Path != "/b" || changes[0].Zxid != r.m.Zxid() {
		t.Fatalf("changes %+v", changes)
	}
	if changes[0].Cause != znode.BySessionClose || changes[0].Session != old.info.ID {
		t.Fatalf("cause %d of session %s", changes[0].Cause, changes[0].Session)
	}
	if !reflect.DeepEqual(r.hook.ended, []endedSession{{old.info.ID, session.GRPC, session.TakenOver}}) {
		t.Fatalf("ended %v", r.hook.ended)
	}
	// A copy of the take-over does not end the session it opened.
	r.is(r.one(r.onServer(&Command{Kind: CmdOpen, Open: o2})), StatusRepeat, nil)
	if young.session() == nil || r.m.state.Sessions.ByIdentity("worker-1").ID != young.info.ID {
		t.Fatal("the new session is gone")
	}
	// A late first Open of the old process is refused.
	r.is(r.one(old.write(create("/x"))), StatusGone, session.ErrExpired)
}

func TestTakeOverOfASessionThatIsGoneOpensAllTheSame(t *testing.T) {
	r := newRig(t)
	o := openOf(1)
	o.Identity, o.Expect = "w", 12345
	r.openWith(o)
}

func TestBadOpensAreRefused(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("x", MaxNameBytes+1)
	bad := map[string]func(o *Open) error{
		"no nonce":     func(o *Open) error { o.Nonce = session.Nonce{}; return znode.ErrBadArguments },
		"no timeout":   func(o *Open) error { o.Timeout = 0; return znode.ErrBadArguments },
		"negative":     func(o *Open) error { o.Timeout = -1; return znode.ErrBadArguments },
		"long timeout": func(o *Open) error { o.Timeout = MaxTimeout + 1; return znode.ErrBadArguments },
		"protocol":     func(o *Open) error { o.Protocol = 9; return znode.ErrBadArguments },
		"name":         func(o *Open) error { o.Name = long; return ErrTooLarge },
		"identity":     func(o *Open) error { o.Identity = long; return ErrTooLarge },
		"address":      func(o *Open) error { o.Address = long; return ErrTooLarge },
		"server":       func(o *Open) error { o.Server = long; return ErrTooLarge },
		"identities":   func(o *Open) error { o.Identities = make([]session.Identity, MaxIdentities+1); return ErrTooLarge },
		"one identity": func(o *Open) error {
			o.Identities = []session.Identity{{Scheme: "digest", ID: long}}
			return ErrTooLarge
		},
	}
	for what, spoil := range bad {
		o := openOf(1)
		want := spoil(o)
		res := r.one(r.onServer(&Command{Kind: CmdOpen, Open: o}))
		if !errors.Is(res.Err, want) || res.Status != StatusDone {
			t.Errorf("%s: %s, %v", what, res.Status, res.Err)
		}
	}
	if r.m.state.Sessions.Len() != 0 {
		t.Fatal("a session was opened")
	}
}

func attachOf(c *client, connection uint64) *Attach {
	return &Attach{
		Session: c.info.ID, Secret: c.info.Secret, Connection: connection,
		Server: "n2~2", Boot: 5, Address: "10.0.0.2:1", Identities: []session.Identity{{Scheme: "digest", ID: "u:h"}},
	}
}

func TestAttachFollowsTheClientsConnectionNumber(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	r.done(c.write(create("/a")))
	res := r.done(r.onServer(&Command{Kind: CmdAttach, Attach: attachOf(c, 5)}))
	s := c.session()
	if res.Session.Generation != 5 || res.Session.Next != 2 || res.Session.Secret != c.info.Secret || res.Session.Elsewhere {
		t.Fatalf("%+v", res.Session)
	}
	if s.Generation != 5 || s.Server != "n2~2" || s.Boot != 5 || s.Address != "10.0.0.2:1" || len(s.Identities) != 1 {
		t.Fatalf("%+v", s)
	}
	again := r.is(r.one(r.onServer(&Command{Kind: CmdAttach, Attach: attachOf(c, 5)})), StatusRepeat, nil)
	if *again.Session != *res.Session {
		t.Fatalf("repeat %+v, first %+v", again.Session, res.Session)
	}
	late := attachOf(c, 4)
	late.Server = "n1~1"
	r.refused(r.onServer(&Command{Kind: CmdAttach, Attach: late}), session.ErrMoved)
	if c.session().Server != "n2~2" {
		t.Fatal("a late attach moved the session back")
	}
}

func TestAttachOfZooKeeperSessionsIsCompareAndSet(t *testing.T) {
	r := newRig(t)
	o := openOf(1)
	o.Protocol = session.ZooKeeper
	c := r.openWith(o)
	attach := func(expect uint64, n int) *Command {
		a := attachOf(c, 0)
		a.Protocol, a.Expect, a.Nonce = session.ZooKeeper, expect, nonce(n)
		return r.onServer(&Command{Kind: CmdAttach, Attach: a})
	}
	r.refused(attach(3, 1), session.ErrMoved)
	res := r.done(attach(1, 2))
	if res.Session.Generation != 2 {
		t.Fatalf("%+v", res.Session)
	}
	again := r.is(r.one(attach(1, 2)), StatusRepeat, nil)
	if again.Session.Generation != 2 {
		t.Fatalf("%+v", again.Session)
	}
	r.refused(attach(1, 3), session.ErrMoved) // another handshake that saw generation 1
	r.done(attach(2, 4))
	r.refused(attach(1, 2), session.ErrMoved) // its repeat, after the session has moved on
	if g := c.session().Generation; g != 3 {
		t.Fatalf("generation %d", g)
	}
	noNonce := attachOf(c, 0)
	noNonce.Protocol, noNonce.Expect = session.ZooKeeper, 3
	r.refused(r.onServer(&Command{Kind: CmdAttach, Attach: noNonce}), znode.ErrBadArguments)
}

func TestAttachAsksForSecretAndProtocol(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	touched := c.session().Touched
	a := attachOf(c, 2)
	a.Secret[15]++
	r.refused(r.onServer(&Command{Kind: CmdAttach, Attach: a}), session.ErrWrongSecret)
	a = attachOf(c, 2)
	a.Protocol = session.ZooKeeper
	r.refused(r.onServer(&Command{Kind: CmdAttach, Attach: a}), session.ErrWrongProtocol)
	if s := c.session(); s.Generation != 1 || s.Touched != touched {
		t.Fatal("a stranger's attach counted")
	}
	a = attachOf(c, 2)
	a.Timeout = -time.Second
	r.refused(r.onServer(&Command{Kind: CmdAttach, Attach: a}), znode.ErrBadArguments)
	a.Timeout = 3 * time.Second
	if res := r.done(r.onServer(&Command{Kind: CmdAttach, Attach: a})); res.Session.Timeout != 3*time.Second {
		t.Fatalf("%+v", res.Session)
	}
	r.done(c2(c, 2).next(&Command{Kind: CmdClose}))
	r.refused(r.onServer(&Command{Kind: CmdAttach, Attach: attachOf(c, 3)}), session.ErrClosed)
	bogus := attachOf(c, 3)
	bogus.Session = 99
	r.refused(r.onServer(&Command{Kind: CmdAttach, Attach: bogus}), session.ErrUnknown)
}

// c2 is the client after an attach at generation gen.
func c2(c *client, gen uint64) *client {
	d := *c
	d.gen = gen
	return &d
}

func TestIdentitiesBelongToTheGeneration(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	r.done(c.write(create("/a")))
	alice := []session.Identity{{Scheme: "digest", ID: "alice:h"}}
	own := znode.Op{
		Kind: znode.OpSetACL, Path: "/a", Version: znode.AnyVersion,
		ACL: []znode.ACL{{Perms: znode.PermAll, Scheme: "digest", ID: "alice:h"}},
	}
	r.done(c.write(own))
	r.refused(c.write(set("/a", "1")), znode.ErrNoAuth)
	r.done(c.next(&Command{Kind: CmdIdentities, Identities: alice}))
	r.done(c.write(set("/a", "1")))
	r.reborn()
	r.done(c.write(set("/a", "2")))

	a := attachOf(c, 2)
	a.Identities = nil
	r.done(r.onServer(&Command{Kind: CmdAttach, Attach: a}))
	c.gen = 2
	r.refused(c.write(set("/a", "3")), znode.ErrNoAuth)
	r.refused(c.next(&Command{Kind: CmdIdentities, Identities: make([]session.Identity, MaxIdentities+1)}), ErrTooLarge)
}

func TestCloseDeletesAllEphemeralsInOneTransaction(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	for _, p := range []string{"/c", "/a", "/b"} {
		r.done(c.write(ephemeral(p)))
	}
	r.done(c.write(create("/keep")))
	r.hook.reset()
	res := r.done(c.next(&Command{Kind: CmdClose}))
	var paths []string
	for _, ch := range r.hook.changes[0] {
		paths = append(paths, ch.Path)
		if ch.Type != znode.Deleted || ch.Zxid != res.Zxid || ch.Cause != znode.BySessionClose || ch.Session != c.info.ID {
			t.Fatalf("%+v", ch)
		}
	}
	if !slices.Equal(paths, []string{"/a", "/b", "/c"}) || !r.exists("/keep") {
		t.Fatalf("deleted %v", paths)
	}
	want := []string{"applied close", "ended closed", "entry " + itoa(r.index)}
	if !slices.Equal(r.hook.order, want) {
		t.Fatalf("order %v", r.hook.order)
	}
}

func TestExpiryAndKillSayTheirCause(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	r.done(c.write(ephemeral("/e")))
	r.hook.reset()
	r.done(&Command{Kind: CmdExpire, Expire: &Expire{Session: c.info.ID, Generation: 1, Touched: c.session().Touched, Term: r.term}})
	if ch := r.hook.changes[0]; len(ch) != 1 || ch[0].Cause != znode.BySessionExpiry || r.hook.ended[0].reason != session.Expired {
		t.Fatalf("%+v %v", ch, r.hook.ended)
	}
	k := r.open(2)
	r.done(k.write(ephemeral("/e")))
	r.hook.reset()
	r.done(&Command{Kind: CmdKill, Kill: &Kill{Session: k.info.ID, Reason: session.Closed}})
	if ch := r.hook.changes[0]; len(ch) != 1 || ch[0].Cause != znode.ByAdmin || r.hook.ended[0].reason != session.Killed {
		t.Fatalf("%+v %v", ch, r.hook.ended)
	}
	r.refused(&Command{Kind: CmdKill, Kill: &Kill{Session: k.info.ID}}, session.ErrExpired)
}

func TestExpiryAppliesOnlyToWhatTheLeaderSaw(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	w := c.write(create("/a"))
	r.done(w)
	seen := func() *Expire {
		s := c.session()
		return &Expire{Session: s.ID, Generation: s.Generation, Touched: s.Touched, Term: r.term}
	}
	expire := func(e *Expire) *Result { return r.one(&Command{Kind: CmdExpire, Expire: e}) }

	// Anything that shows the client alive in between, even what changes nothing.
	for _, sign := range []*Command{
		c.write(create("/b")),
		w, // a repeat
		{Kind: CmdWrite, Line: c.line(), Seq: 99, Write: &Write{}},                                  // a gap
		{Kind: CmdWrite, Line: LineRef{Session: c.info.ID, Generation: 9}, Seq: 3, Write: &Write{}}, // moved
		r.onServer(&Command{Kind: CmdAttach, Attach: attachOf(c, 1)}),
		r.onServer(&Command{Kind: CmdOpen, Open: openOf(1)}),
	} {
		e := seen()
		res := r.one(sign)
		if c.session().Touched != r.index {
			t.Fatalf("%s, %s: touched %d at index %d", res.Kind, res.Status, c.session().Touched, r.index)
		}
		r.is(expire(e), StatusDone, ErrOutdated)
		if c.session() == nil {
			t.Fatalf("expired in spite of %s, %s", res.Kind, res.Status)
		}
	}
	e := seen()
	e.Generation++
	r.is(expire(e), StatusDone, ErrOutdated)
	e = seen()
	e.Term--
	r.is(expire(e), StatusDone, ErrOutdated)
	old := seen()
	r.epoch(0)
	r.is(expire(old), StatusDone, ErrOutdated)
	r.is(expire(seen()), StatusDone, nil)
	r.is(expire(old), StatusDone, ErrOutdated)
}

func TestSilenceThatIsMarkedGrowsAndIsTakenBack(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	timeout := c.session().Timeout
	seen := func(silent time.Duration) *Expire {
		s := c.session()
		return &Expire{Session: s.ID, Generation: s.Generation, Touched: s.Touched, Term: r.term, Silent: silent}
	}
	mark := func(e *Expire) *Command { return &Command{Kind: CmdSuspect, Expire: e} }
	stands := func(want time.Duration, why string) {
		t.Helper()
		if got := c.session().Suspected; got != want {
			t.Fatalf("%s: silent for %s by the table, want %s", why, got, want)
		}
	}
	r.done(mark(seen(timeout / 2)))
	stands(timeout/2, "the first mark")
	r.done(mark(seen(timeout / 3)))
	stands(timeout/2, "a mark of less")
	r.done(mark(seen(timeout * 3 / 4)))
	stands(timeout*3/4, "a mark of more")
	r.done(mark(seen(1<<63 - 1)))
	stands(timeout, "a mark of more than the timeout")
	for _, none := range []time.Duration{0, -1, -1 << 63} {
		r.refused(mark(seen(none)), znode.ErrBadArguments)
	}
	stands(timeout, "marks of no silence")

	old := seen(timeout / 2)
	old.Term--
	r.refused(&Command{Kind: CmdUnsuspect, Expire: old}, ErrOutdated)
	stands(timeout, "taken back by a former leader")
	r.done(&Command{Kind: CmdUnsuspect, Expire: seen(0)})
	stands(0, "taken back")
	r.refused(mark(old), ErrOutdated)
	stands(0, "a former leader's mark")
	r.refused(&Command{Kind: CmdUnsuspect, Expire: &Expire{Session: 99, Term: r.term}}, ErrOutdated)

	r.done(mark(seen(timeout / 2)))
	late := seen(timeout)
	r.done(c.write(create("/a")))
	stands(0, "a command of the session")
	r.refused(mark(late), ErrOutdated)
	stands(0, "a mark from before the command")
}

func TestTrimDropsAnswersOfIdleSessions(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	for range 5 {
		r.one(c.write(set("/none", "")))
	}
	touched := c.session().Touched
	trim := r.onServer(&Command{Kind: CmdTrim, Trim: []Trim{{c.info.ID, 3}, {99, 1}}})
	r.done(trim)
	if n, _ := c.session().Line.Unacked(); n != 2 || c.session().Touched != touched {
		t.Fatalf("%d answers kept, touched %d", n, c.session().Touched)
	}
	r.done(r.onServer(&Command{Kind: CmdTrim, Trim: []Trim{{c.info.ID, 1}}}))
	if c.session().Line.Acked() != 3 {
		t.Fatal("a smaller trim lowered the mark")
	}
}
