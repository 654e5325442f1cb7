package fsm

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }

// sessionless is a write on the server's line.
func (r *rig) sessionless(w Write) *Command {
	return r.onServer(&Command{Kind: CmdWrite, Write: &w})
}

func TestEphemeralNeedsASession(t *testing.T) {
	r := newRig(t)
	r.refused(r.sessionless(Write{Trusted: true, Ops: []znode.Op{ephemeral("/e")}}), znode.ErrBadArguments)
	if r.exists("/e") {
		t.Fatal("created")
	}
}

func TestEphemeralOwnerIsTheSession(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	res := r.done(c.write(ephemeral("/e")))
	if res.Ops[0].Stat.EphemeralOwner != c.info.ID {
		t.Fatalf("%+v", res.Ops[0].Stat)
	}
}

func TestWriteInASessionCannotSayWhoItIs(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	acl := create("/a")
	acl.ACL = []znode.ACL{{Perms: znode.PermRead, Scheme: "world", ID: "anyone"}}
	r.done(c.write(acl))
	w := c.write(set("/a", "x"))
	w.Write.Trusted = true
	w.Write.Identities = []session.Identity{{Scheme: "super"}}
	if err := Validate(AppendCommand(nil, w)); !errors.Is(err, znode.ErrBadArguments) {
		t.Errorf("Validate let it through: %v", err)
	}
	r.refused(w, znode.ErrNoAuth)
}

func TestSessionlessCallerIsWhatTheWriteSays(t *testing.T) {
	r := newRig(t)
	op := create("/a")
	op.ACL = []znode.ACL{{Perms: znode.PermAll, Scheme: "digest", ID: "u:h"}}
	r.done(r.sessionless(Write{Ops: []znode.Op{op}}))
	r.refused(r.sessionless(Write{Ops: []znode.Op{set("/a", "")}}), znode.ErrNoAuth)
	r.done(r.sessionless(Write{Ops: []znode.Op{set("/a", "")}, Identities: []session.Identity{{Scheme: "digest", ID: "u:h"}}}))
	r.done(r.sessionless(Write{Ops: []znode.Op{set("/a", "")}, Trusted: true}))
}

func TestFailedMultiChangesNothingAndFiresNothing(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	r.done(c.write(create("/a")))
	tree := r.m.state.Tree.Digest()
	r.hook.reset()
	res := r.refused(c.write(set("/a", "1"), create("/b"), create("/a"), create("/c")), znode.ErrNodeExists)
	var multi *znode.MultiError
	if !errors.As(res.Err, &multi) || multi.Index != 2 {
		t.Fatalf("%v", res.Err)
	}
	if len(r.hook.changes[0]) != 0 || r.m.state.Tree.Digest() != tree {
		t.Fatal("something changed")
	}
	if len(res.Ops) != 4 || res.Ops[0].Err != nil || !errors.Is(res.Ops[2].Err, znode.ErrNodeExists) || !errors.Is(res.Ops[3].Err, znode.ErrRolledBack) {
		t.Fatalf("%+v", res.Ops)
	}
}

func TestBoundsHoldAtApply(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	r.done(c.write(create("/a")))
	long := create("/" + strings.Repeat("p", MaxPathBytes))
	acl := create("/b")
	acl.ACL = make([]znode.ACL, MaxACLs+1)
	name := create("/b")
	name.ACL = []znode.ACL{{Perms: 1, Scheme: "digest", ID: strings.Repeat("x", MaxNameBytes+1)}}
	big := set("/a", strings.Repeat("x", MaxDataBytes+1))
	for i, op := range []znode.Op{long, acl, name, big} {
		res := r.refused(c.write(op), ErrTooLarge)
		if !errors.Is(res.Ops[0].Err, ErrTooLarge) {
			t.Fatalf("%d: %+v", i, res.Ops)
		}
	}
	res := r.refused(c.write(create("/x"), big, create("/y")), ErrTooLarge)
	if res.Ops[0].Err != nil || !errors.Is(res.Ops[1].Err, ErrTooLarge) || !errors.Is(res.Ops[2].Err, znode.ErrRolledBack) || r.exists("/x") {
		t.Fatalf("%+v", res.Ops)
	}
	two := c.write(create("/x"))
	two.Write.Ops = append(two.Write.Ops, create("/y"))
	r.refused(two, znode.ErrBadArguments)
	none := c.write(create("/x"))
	none.Write.Ops = nil
	r.refused(none, znode.ErrBadArguments)
	half := set("/a", strings.Repeat("x", MaxDataBytes))
	r.refused(c.write(half, half, half), ErrTooLarge)
	many := c.next(&Command{Kind: CmdWrite, Write: &Write{Multi: true, Ops: make([]znode.Op, MaxOps+1)}})
	r.refused(many, ErrTooLarge)
}

func requestWrite(id string, end int64, ops ...znode.Op) Write {
	return Write{RequestID: id, ValidUntil: end, Ops: ops, Trusted: true}
}

func TestRequestIDIsDoneOnceThroughWhateverServer(t *testing.T) {
	r := newRig(t)
	end := r.clock + 60_000
	op := create("/q-")
	op.Sequential = true
	first := r.done(r.sessionless(requestWrite("id-1", end, op)))
	if first.ValidUntil != end || first.Deduplicated {
		t.Fatalf("%+v", first)
	}
	r.done(&Command{Kind: CmdBoot, Boot: &Boot{Server: "n2~1", Nonce: 1}})
	w := requestWrite("id-1", end, op)
	again := r.one(&Command{Kind: CmdWrite, Line: LineRef{Server: "n2~1", Boot: 1}, Seq: 1, Write: &w})
	r.is(again, StatusRepeat, nil)
	if !again.Deduplicated || again.Zxid != first.Zxid || again.Ops[0].Path != first.Ops[0].Path || again.ValidUntil != end {
		t.Fatalf("%+v", again)
	}
	// A refusal is remembered as well.
	r.refused(r.sessionless(requestWrite("id-2", end, create("/no/parent"))), znode.ErrNoNode)
	r.done(r.sessionless(Write{Trusted: true, Ops: []znode.Op{create("/no")}}))
	r.is(r.one(r.sessionless(requestWrite("id-2", end, create("/no/parent")))), StatusRepeat, znode.ErrNoNode)
}

func TestRequestIDWithOtherContentIsRefused(t *testing.T) {
	r := newRig(t)
	end := r.clock + 60_000
	r.done(r.sessionless(requestWrite("id", end, create("/a"))))
	r.refused(r.sessionless(requestWrite("id", end, create("/b"))), session.ErrRequestReused)
	multi := requestWrite("id", end, create("/a"))
	multi.Multi = true
	r.refused(r.sessionless(multi), session.ErrRequestReused)
	if r.exists("/b") {
		t.Fatal("done")
	}
}

func TestRequestIDEnds(t *testing.T) {
	r := newRig(t)
	end := r.clock + 1000
	r.done(r.sessionless(requestWrite("id", end, create("/a"))))
	r.clock = end
	r.is(r.one(r.sessionless(requestWrite("id", end, create("/a")))), StatusRepeat, nil)
	r.clock = end + 1
	r.refused(r.sessionless(requestWrite("id", end, create("/a"))), session.ErrRequestTooOld)
	if n := r.m.state.Sessions.RequestCount(); n != 0 {
		t.Fatalf("%d ids kept past their end", n)
	}
	many := Write{Ops: []znode.Op{create("/b")}, Identities: make([]session.Identity, MaxIdentities+1)}
	r.refused(r.sessionless(many), ErrTooLarge)
	r.refused(r.sessionless(requestWrite("far", r.clock+MaxRequestValidity.Milliseconds()+1, create("/b"))), znode.ErrBadArguments)
	r.refused(r.sessionless(requestWrite(strings.Repeat("i", MaxNameBytes+1), end, create("/b"))), ErrTooLarge)
}

func TestFullTableOfRequestIDsIsAnOverloadAndNotRemembered(t *testing.T) {
	r := newRig(t)
	end := r.clock + 1000
	for i := range session.MaxRequests {
		req := &session.Request{ID: fmt.Sprintf("fill-%d", i), End: end, Value: &Result{Kind: CmdWrite}}
		if err := r.m.state.Sessions.Remember(req); err != nil {
			t.Fatal(err)
		}
	}
	res := r.refused(r.sessionless(requestWrite("id", end+1000, create("/a"))), session.ErrRequestsFull)
	if CodeOf(res.Err) != CodeOverloaded || r.exists("/a") {
		t.Fatalf("%v", res.Err)
	}
	r.clock = end + 1
	r.done(r.sessionless(requestWrite("id", end+1000, create("/a"))))
}

func TestReapIsConditionalAndOfThisLeader(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	box := create("/box")
	box.Node = znode.Container
	r.done(c.write(box))
	r.done(c.write(create("/box/child")))
	r.done(c.write(del("/box/child")))
	r.clock += int64(time.Hour / time.Millisecond)
	r.entry()
	due := r.m.state.Tree.Expired(r.m.state.Clock, 10)
	if len(due) != 1 || due[0].Path != "/box" {
		t.Fatalf("due: %+v", due)
	}
	r.refused(&Command{Kind: CmdReap, Term: r.term - 1, Reap: due}, ErrOutdated)
	r.done(c.write(create("/box/again")))
	res := r.one(&Command{Kind: CmdReap, Term: r.term, Reap: due})
	if res.Err != nil || res.Ops[0].Err == nil || !r.exists("/box") {
		t.Fatalf("a container in use was reaped: %+v", res)
	}
	r.done(c.write(del("/box/again")))
	due = r.m.state.Tree.Expired(r.m.state.Clock, 10)
	r.hook.reset()
	res = r.done(&Command{Kind: CmdReap, Term: r.term, Reap: due})
	if res.Ops[0].Err != nil || r.exists("/box") || r.hook.changes[0][0].Cause != znode.ByReaper {
		t.Fatalf("%+v %+v", res, r.hook.changes)
	}
}

func TestFeatureLevelRisesAndAnUnknownOneStopsTheReplica(t *testing.T) {
	r := newRig(t)
	r.m.opts.FeatureLevel = 3
	r.refused(&Command{Kind: CmdFeature, Feature: 2, Term: r.term - 1}, ErrOutdated)
	r.done(&Command{Kind: CmdFeature, Feature: 3, Term: r.term})
	r.done(&Command{Kind: CmdFeature, Feature: 2, Term: r.term})
	if l := r.m.state.FeatureLevel; l != 3 {
		t.Fatalf("level %d", l)
	}
	err := r.m.ApplyEntry(r.index+1, r.term, encodeEntry(r.clock, &Command{Kind: CmdFeature, Feature: 4, Term: r.term}))
	if !errors.Is(err, ErrStop) || !strings.Contains(err.Error(), "level 4") || !strings.Contains(err.Error(), "knows 3") {
		t.Fatalf("%v", err)
	}
}

// What is kept of an entry must not be a part of it: Raft's cache shares the
// bytes, and one znode would pin a megabyte.
func TestNothingOfTheEntryIsKept(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	op := create("/kept")
	op.Data = []byte("payload-payload")
	op.ACL = []znode.ACL{{Perms: znode.PermAll, Scheme: "digest", ID: "someone:hash"}, {Perms: 1, Scheme: "world", ID: "anyone"}}
	data := encodeEntry(r.clock, c.write(op), c.write(ephemeral("/eph")),
		r.onServer(&Command{Kind: CmdOpen, Open: openOf(7)}))
	r.index++
	if err := r.m.ApplyEntry(r.index, r.term, data); err != nil {
		t.Fatal(err)
	}
	before := r.snapshot()
	for i := range data {
		data[i] = 0xff
	}
	got, _, err := r.m.state.Tree.Get("/kept", &znode.Caller{Trusted: true})
	if err != nil || string(got) != "payload-payload" {
		t.Fatalf("%q, %v", got, err)
	}
	changes := r.hook.changes[len(r.hook.changes)-3]
	if len(changes) != 1 || string(changes[0].Data) != "payload-payload" || changes[0].Path != "/kept" {
		t.Fatalf("%+v", changes)
	}
	if string(before) != string(r.snapshot()) {
		t.Fatal("the state changed with the bytes of the entry")
	}
}

// A decoder that is not used for a while must not hold on to an old entry.
func TestAnAppliedEntryIsLetGo(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	r.done(c.write(create("/a")))
	gone := make(chan struct{})
	func() {
		var cmds []*Command
		for range 2 * chunkSize {
			cmds = append(cmds, c.write(set("/a", "some data")))
		}
		data := encodeEntry(r.clock, cmds...)
		runtime.AddCleanup(&data[0], func(ch chan struct{}) { close(ch) }, gone)
		r.index++
		if err := r.m.ApplyEntry(r.index, r.term, data); err != nil {
			t.Fatal(err)
		}
	}()
	waitFor(t, func() bool {
		runtime.GC()
		select {
		case <-gone:
			return true
		default:
			return false
		}
	})
	runtime.KeepAlive(r)
}

func TestBoundariesPassWithoutPause(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	r.done(c.write(create("/q")))
	for _, start := range []uint64{1<<31 - 2, 1<<32 - 2, 9_999_999_998} {
		if err := r.m.state.Tree.SetSequence("/q", start); err != nil {
			t.Fatal(err)
		}
		var last string
		for i := range uint64(4) {
			op := create("/q/n-")
			op.Sequential = true
			res := r.done(c.write(op))
			want := fmt.Sprintf("/q/n-%010d", start+i)
			if res.Ops[0].Path != want {
				t.Fatalf("after %q came %q, want %q", last, res.Ops[0].Path, want)
			}
			last = res.Ops[0].Path
		}
	}
	r.m.state.Zxid = zxid.Make(testEpoch, 1<<32-100)
	before := r.m.state.Zxid
	for range 200 {
		res := r.done(c.write(set("/q", "x")))
		if res.Zxid <= before {
			t.Fatalf("%s after %s", res.Zxid, before)
		}
		before = res.Zxid
	}
	r.reborn()
	r.done(c.write(set("/q", "x")))
}
