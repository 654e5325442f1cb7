package fsm

import (
	"fmt"
	"testing"
	"time"

	"github.com/coordd/coord/znode"
)

// TestLostReplyIsAnsweredTheSameWithOneEffect applies every kind of write, then
// again as if its reply had been lost: at once, through another connection,
// under another leader, and on a machine restored from a snapshot. The answer
// is that of the first time and the tree is not touched again.
func TestLostReplyIsAnsweredTheSameWithOneEffect(t *testing.T) {
	kinds := map[string]func(r *rig, c *client) *Command{
		"create":            func(_ *rig, c *client) *Command { return c.write(create("/new")) },
		"create sequential": func(_ *rig, c *client) *Command { return c.write(sequential("/seq-")) },
		"create ephemeral":  func(_ *rig, c *client) *Command { return c.write(ephemeral("/eph")) },
		"create ttl": func(_ *rig, c *client) *Command {
			op := create("/ttl")
			op.Node, op.TTL = znode.TTL, time.Minute
			return c.write(op)
		},
		"create container": func(_ *rig, c *client) *Command {
			op := create("/box")
			op.Node = znode.Container
			return c.write(op)
		},
		"set":           func(_ *rig, c *client) *Command { return c.write(set("/a", "new")) },
		"set version":   func(_ *rig, c *client) *Command { op := set("/a", "v"); op.Version = 0; return c.write(op) },
		"wrong version": func(_ *rig, c *client) *Command { op := set("/a", "v"); op.Version = 9; return c.write(op) },
		"delete":        func(_ *rig, c *client) *Command { return c.write(del("/a")) },
		"set acl": func(_ *rig, c *client) *Command {
			return c.write(znode.Op{Kind: znode.OpSetACL, Path: "/a", ACL: znode.OpenACL, Version: znode.AnyVersion})
		},
		"multi":        func(_ *rig, c *client) *Command { return c.write(sequential("/a/m-"), set("/a", "m"), create("/a/n")) },
		"failed multi": func(_ *rig, c *client) *Command { return c.write(set("/a", "m"), create("/a")) },
		"skip":         func(_ *rig, c *client) *Command { return c.next(&Command{Kind: CmdSkip, Code: CodeLimit}) },
		"sessionless": func(r *rig, _ *client) *Command {
			return r.sessionless(Write{Trusted: true, Ops: []znode.Op{sequential("/sl-")}})
		},
		"with request id": func(r *rig, _ *client) *Command {
			return r.sessionless(requestWrite("id", r.clock+600_000, sequential("/rq-")))
		},
		"open": func(r *rig, _ *client) *Command { return r.onServer(&Command{Kind: CmdOpen, Open: openOf(50)}) },
		"attach": func(r *rig, c *client) *Command {
			return r.onServer(&Command{Kind: CmdAttach, Attach: attachOf(c, 2)})
		},
		"close": func(_ *rig, c *client) *Command { return c.next(&Command{Kind: CmdClose}) },
	}
	between := map[string]func(r *rig, c *client, cmd *Command){
		"at once":  func(*rig, *client, *Command) {},
		"snapshot": func(r *rig, _ *client, _ *Command) { r.reborn() },
		"new leader": func(r *rig, _ *client, _ *Command) {
			r.clock += 5000
			r.epoch(0)
		},
		"new leader and snapshot": func(r *rig, _ *client, _ *Command) {
			r.reborn()
			r.epoch(0)
			r.reborn()
		},
		"another connection": func(r *rig, c *client, cmd *Command) {
			if cmd.Line.Session != 0 && c.session() != nil {
				r.done(r.onServer(&Command{Kind: CmdAttach, Attach: attachOf(c, 9)}))
				cmd.Line.Generation = 9
			}
		},
	}
	for kind, make := range kinds {
		for what, meanwhile := range between {
			t.Run(kind+", "+what, func(t *testing.T) {
				r := newRig(t)
				c := r.open(1)
				r.done(c.write(create("/a")))
				cmd := make(r, c)
				first := r.is(r.one(cmd), StatusDone, errOf(r))
				meanwhile(r, c, cmd)
				tree, z, sessions := r.m.state.Tree.Digest(), r.m.Zxid(), r.m.state.Sessions.Len()
				r.hook.reset()
				again := r.one(cmd)
				sameAnswer(t, first, again)
				if len(r.hook.changes[0]) != 0 || r.m.state.Tree.Digest() != tree || r.m.Zxid() != z || r.m.state.Sessions.Len() != sessions {
					t.Fatal("the second copy had an effect")
				}
			})
		}
	}
}

// errOf is the error of the last result: whatever it was, it is to come again.
func errOf(r *rig) error { return r.hook.results[len(r.hook.results)-1].Err }

func sameAnswer(t *testing.T, first, again *Result) {
	t.Helper()
	if again.Status != StatusRepeat || again.Zxid != first.Zxid || again.Kind != first.Kind || again.ValidUntil != first.ValidUntil {
		t.Fatalf("first %+v, again %+v", first, again)
	}
	if fmt.Sprint(again.Err) != fmt.Sprint(first.Err) || CodeOf(again.Err) != CodeOf(first.Err) {
		t.Fatalf("first %v, again %v", first.Err, again.Err)
	}
	if len(again.Ops) != len(first.Ops) || (again.Session == nil) != (first.Session == nil) {
		t.Fatalf("first %+v, again %+v", first, again)
	}
	for i, o := range again.Ops {
		w := first.Ops[i]
		if o.Path != w.Path || o.Stat != w.Stat || o.Kind != w.Kind || fmt.Sprint(o.Err) != fmt.Sprint(w.Err) {
			t.Fatalf("op %d: first %+v, again %+v", i, w, o)
		}
	}
	if again.Session != nil && *again.Session != *first.Session {
		t.Fatalf("first %+v, again %+v", first.Session, again.Session)
	}
}

func sequential(path string) znode.Op {
	op := create(path)
	op.Sequential = true
	return op
}

// A request id is known through every server and start, also when the server
// line it came on is gone.
func TestLostReplyOfARequestIDAfterARestartOfItsServer(t *testing.T) {
	r := newRig(t)
	w := requestWrite("id", r.clock+600_000, sequential("/rq-"))
	first := r.done(r.sessionless(w))
	r.reborn()
	r.done(&Command{Kind: CmdBoot, Boot: &Boot{Server: testServer, Nonce: testBoot + 1}})
	again := r.one(&Command{Kind: CmdWrite, Line: LineRef{Server: testServer, Boot: testBoot + 1}, Seq: 1, Write: &w})
	if !again.Deduplicated {
		t.Fatalf("%+v", again)
	}
	sameAnswer(t, first, again)
}

// An Open whose reply was lost is repeated through another server.
func TestLostReplyOfOpenThroughAnotherServer(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	r.reborn()
	r.done(&Command{Kind: CmdBoot, Boot: &Boot{Server: "n2~1", Nonce: 1}})
	o := openOf(1)
	o.Server, o.Boot = "n2~1", 1
	again := r.one(&Command{Kind: CmdOpen, Line: LineRef{Server: "n2~1", Boot: 1}, Seq: 1, Open: o})
	r.is(again, StatusRepeat, nil)
	if again.Session.ID != c.info.ID || again.Session.Secret != c.info.Secret || !again.Session.Elsewhere {
		t.Fatalf("%+v", again.Session)
	}
	if ended, ok := r.m.state.Sessions.EndedSession(c.info.ID); ok {
		t.Fatalf("ended: %+v", ended)
	}
}
