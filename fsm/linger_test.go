package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

func lingering(path string, d time.Duration) znode.Op {
	op := ephemeral(path)
	op.Linger = d
	return op
}

// TestEveryEndButACloseLetsNodesLinger, with the cause that the end has.
func TestEveryEndButACloseLetsNodesLinger(t *testing.T) {
	for _, end := range []struct {
		reason session.EndReason
		cause  znode.Cause
		stays  bool
		do     func(r *rig, c *client) *Command
	}{
		{session.Closed, znode.BySessionClose, false, func(r *rig, c *client) *Command { return c.next(&Command{Kind: CmdClose}) }},
		{session.Expired, znode.BySessionExpiry, true, func(r *rig, c *client) *Command {
			return &Command{Kind: CmdExpire, Expire: &Expire{Session: c.info.ID, Generation: 1, Touched: c.session().Touched, Term: r.term}}
		}},
		{session.Killed, znode.ByAdmin, true, func(r *rig, c *client) *Command {
			return &Command{Kind: CmdKill, Kill: &Kill{Session: c.info.ID, Reason: session.Killed}}
		}},
		{session.Restored, znode.ByAdmin, true, func(r *rig, c *client) *Command {
			return &Command{Kind: CmdKill, Kill: &Kill{Session: c.info.ID, Reason: session.Restored}}
		}},
		{session.TakenOver, znode.BySessionClose, true, func(r *rig, c *client) *Command {
			o := openOf(2)
			o.Identity, o.Expect = "worker", c.info.ID
			return r.onServer(&Command{Kind: CmdOpen, Open: o})
		}},
	} {
		t.Run(end.reason.String(), func(t *testing.T) {
			r := newRig(t)
			o := openOf(1)
			o.Identity = "worker"
			c := r.openWith(o)
			for _, op := range []znode.Op{ephemeral("/z"), lingering("/b", time.Minute), ephemeral("/a"), lingering("/c", time.Second)} {
				r.done(c.write(op))
			}
			r.hook.reset()
			res := r.done(end.do(r, c))
			var got []string
			for _, ch := range r.hook.changes[0] {
				got = append(got, fmt.Sprintf("%s %d", ch.Path, ch.Type))
				if ch.Zxid != res.Zxid || ch.Cause != end.cause || ch.Session != c.info.ID {
					t.Errorf("change %+v", ch)
				}
			}
			became := znode.Deleted
			if end.stays {
				became = znode.DataChanged
			}
			want := []string{
				fmt.Sprintf("/a %d", znode.Deleted), fmt.Sprintf("/b %d", became),
				fmt.Sprintf("/c %d", became), fmt.Sprintf("/z %d", znode.Deleted),
			}
			if !slices.Equal(got, want) || r.hook.ended[0].reason != end.reason {
				t.Errorf("changes %v, want %v; ended %v", got, want, r.hook.ended)
			}
			if r.exists("/b") != end.stays || len(r.m.state.Tree.Ephemerals(c.info.ID, "")) != 0 {
				t.Error("what is left is wrong")
			}
		})
	}
}

// TestLingeringNodeIsReapedInItsTime also by a replica that got the state as a
// snapshot, and both agree on it.
func TestLingeringNodeIsReapedInItsTime(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	bid := lingering("/q", 20*time.Second)
	bid.TTL = time.Minute
	made := r.done(c.write(bid)).Ops[0].Stat
	r.clock += 5000
	r.done(&Command{Kind: CmdExpire, Expire: &Expire{Session: c.info.ID, Generation: 1, Touched: c.session().Touched, Term: r.term}})
	twin := restored(t, r.m, &recorder{})
	due := func(m *Machine, after time.Duration) (found []znode.Reap) {
		m.View(func(v *View) { found = v.Tree.Expired(made.Mtime+5000+after.Milliseconds(), 10) })
		return found
	}
	found := due(twin, 20*time.Second)
	if len(due(r.m, 20*time.Second-1)) != 0 || len(found) != 1 || found[0] != due(r.m, 20*time.Second)[0] || found[0].Mzxid != r.m.Zxid() {
		t.Fatalf("due %+v and %+v", found, due(r.m, 20*time.Second-1))
	}
	data := encodeEntry(r.clock, &Command{Kind: CmdReap, Term: r.term, Reap: found})
	r.index++
	for _, m := range []*Machine{r.m, twin} {
		if err := m.ApplyEntry(r.index, r.term, data); err != nil {
			t.Fatal(err)
		}
	}
	if agree(t, []*Machine{r.m, twin}); r.exists("/q") || !bytes.Equal(encode(t, r.m), encode(t, twin)) {
		t.Error("the replicas differ, or the node is still there")
	}
}
