package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

// bid is an ephemeral sequential node with times in ms.
func bid(path string, ttl, linger int64) *coordpb.Op {
	op := ephemeral(path)
	op.Sequential, op.TtlMs, op.LingerMs = true, ttl, linger
	return op
}

// TestLostHolderLeavesItsNodeForAWhile, as a waiter sees it: one change when the
// session ends, the deletion when the time is over, and nothing that the lost
// holder could do about it.
func TestLostHolderLeavesItsNodeForAWhile(t *testing.T) {
	r := start(t, oneServer(t))
	holder, waiter := r.open(), r.open()
	holder.must(create("/q", ""))
	made := holder.must(bid("/q/a-", 60_000, 0)).GetResults()[0]
	won := set(made.GetPath(), "won")
	won.TtlMs, won.LingerMs, won.Owner = -1, 400, holder.welcome.GetSessionId()
	st := holder.must(won).GetResults()[0].GetStat()
	if made.GetStat().GetTtlMs() != 60_000 || st.GetTtlMs() != 0 || st.GetLingerMs() != 400 || st.GetKind() != coordpb.NodeKind_NODE_KIND_EPHEMERAL {
		t.Fatalf("made %v, then %v", made.GetStat(), st)
	}
	waiter.watch(&coordpb.Watch{Path: made.GetPath(), Kind: coordpb.Watch_KIND_NODE, WithData: true})
	r.node.Propose(&fsm.Command{Kind: fsm.CmdKill, Kill: &fsm.Kill{
		Session: session.ID(holder.welcome.GetSessionId()), Reason: session.Expired,
	}}, nil)
	waiter.wait("the node is gone", func() bool { return len(waiter.events) == 2 })
	changed, gone := waiter.seen()[0], waiter.seen()[1]
	now := changed.GetStat()
	if changed.GetType() != coordpb.EventType_EVENT_CHANGED || changed.GetCause() != coordpb.Cause_CAUSE_ADMIN || string(changed.GetData()) != "won" ||
		changed.GetSession() != holder.welcome.GetSessionId() {
		t.Errorf("first event %v", changed)
	}
	if now.GetKind() != coordpb.NodeKind_NODE_KIND_TTL || now.GetTtlMs() != 400 || now.GetLingerMs() != 0 || now.GetEphemeralOwner() != 0 ||
		now.GetCzxid() != made.GetStat().GetCzxid() || now.GetVersion() != 2 {
		t.Errorf("it became %v", now)
	}
	if gone.GetType() != coordpb.EventType_EVENT_DELETED || gone.GetCause() != coordpb.Cause_CAUSE_REAPED {
		t.Errorf("second event %v", gone)
	}
}

// TestEphemeralsOfAnotherSessionAreListed, but for those in folders that the
// caller may not read; a session always sees its own.
func TestEphemeralsOfAnotherSessionAreListed(t *testing.T) {
	cfg := oneServer(t)
	cfg.Limits = Limits{ChildrenPerReply: 2}
	r := start(t, cfg)
	a, b := r.open(), r.open()
	closed := create("/closed", "")
	closed.Acl = []*coordpb.ACL{{Perms: 4, Scheme: "world", Id: "anyone"}}
	a.must(create("/p", ""))
	a.must(create("/pq", ""))
	a.must(closed)
	for i := range 5 {
		a.must(ephemeral(fmt.Sprintf("/p/%d", i)))
	}
	a.must(ephemeral("/closed/x"))
	a.must(ephemeral("/pq/x"))
	list := func(c *tester, of uint64, path string) (got []string) {
		t.Helper()
		for after, more := "", true; more; {
			rep := c.read(&coordpb.Read{Kind: coordpb.Read_KIND_EPHEMERALS, Path: path, Session: of, After: after})
			wantCode(t, rep.GetError(), coordpb.Code_CODE_OK)
			page := rep.GetRead().GetNames()
			got, more = append(got, page...), rep.GetRead().GetMore()
			if more {
				after = page[len(page)-1]
			}
		}
		return got
	}
	own := a.welcome.GetSessionId()
	in := []string{"/p/0", "/p/1", "/p/2", "/p/3", "/p/4"}
	for _, c := range []struct {
		who  *tester
		of   uint64
		path string
		want []string
	}{
		{b, own, "/p", in},
		{b, own, "/", append(slices.Clone(in), "/pq/x")},
		{b, own, "/closed", nil},
		{b, 0, "/", nil},
		{b, 12345, "/", nil},
		{a, 0, "/", append([]string{"/closed/x"}, append(slices.Clone(in), "/pq/x")...)},
		{a, own, "/closed", []string{"/closed/x"}},
		{a, own, "", append([]string{"/closed/x"}, append(slices.Clone(in), "/pq/x")...)},
	} {
		if got := list(c.who, c.of, c.path); !slices.Equal(got, c.want) {
			t.Errorf("of %x at %q: %v, want %v", c.of, c.path, got, c.want)
		}
	}
	plain := r.hello(&coordpb.Hello{Mode: coordpb.Hello_MODE_NONE})
	if got := list(plain, own, "/p"); !slices.Equal(got, in) {
		t.Errorf("without a session: %v", got)
	}
	wantCode(t, plain.read(&coordpb.Read{Kind: coordpb.Read_KIND_EPHEMERALS, Path: "/"}).GetError(), coordpb.Code_CODE_BAD_ARGUMENTS)
}

// TestNearestOfAKindIsFoundInAShortQueueAndALongOne: readers pass each other, but
// not the last writer.
func TestNearestOfAKindIsFoundInAShortQueueAndALongOne(t *testing.T) {
	r := start(t, oneServer(t))
	c := r.open()
	c.must(create("/l", ""))
	var ops []*coordpb.Op
	for i := range keepFrom + 50 {
		kind := "__READ__"
		if i == 3 || i == 100 {
			kind = "__WRIT__"
		}
		op := create("/l/"+kind, "")
		op.Sequential = true
		ops = append(ops, op)
	}
	var names []string
	look := func(at int, text, want string) {
		t.Helper()
		rep := c.read(&coordpb.Read{Kind: coordpb.Read_KIND_PREDECESSOR, Path: "/l", After: names[at], Containing: text})
		got := rep.GetRead()
		if rep.GetError() != nil || strings.Join(got.GetNames(), " ") != want || got.GetCount() != int64(at) {
			t.Errorf("%q before %s: %v %v, want %s", text, names[at], got, rep.GetError(), want)
		}
	}
	check := func(last int) {
		t.Helper()
		look(3, "WRIT", "")
		look(50, "WRIT", names[3])
		look(99, "__WRIT__", names[3])
		look(last, "", names[last-1])
		look(last, "none such", "")
	}
	for i, op := range ops {
		names = append(names, strings.TrimPrefix(c.must(op).GetResults()[0].GetPath(), "/l/"))
		if i == 200 {
			check(i)
		}
	}
	check(len(names) - 1)
	look(len(names)-1, "WRIT", names[100])
	c.must(remove("/l/" + names[100]))
	names = slices.Delete(names, 100, 101)
	look(len(names)-1, "WRIT", names[3])
	if n := r.queues.built.Load(); n != 1 {
		t.Errorf("the order was built %d times", n)
	}
	wantCode(t, c.read(&coordpb.Read{
		Kind: coordpb.Read_KIND_PREDECESSOR, Path: "/l", After: names[5], Containing: strings.Repeat("x", 1<<20),
	}).GetError(), coordpb.Code_CODE_TOO_LARGE)
}
