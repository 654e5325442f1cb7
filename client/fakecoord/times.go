package fakecoord

import (
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/znode"
)

// Nodes with a time to live, and ephemerals that outlive their session. Unlike
// the end of silent sessions, which a test calls for, the deletion of nodes whose
// time is over happens by itself.

const (
	ephemeral = coordpb.NodeKind_NODE_KIND_EPHEMERAL
	withTTL   = coordpb.NodeKind_NODE_KIND_TTL
)

func within(ms int64, most time.Duration) bool { return ms > 0 && ms <= most.Milliseconds() }

// mayHaveTimes says whether a create may ask for its times.
func mayHaveTimes(op *coordpb.Op) bool {
	ttl := op.TtlMs == 0 && op.Node != withTTL || within(op.TtlMs, znode.MaxTTL) && (op.Node == withTTL || op.Node == ephemeral)
	return ttl && (op.LingerMs == 0 || within(op.LingerMs, znode.MaxLinger) && op.Node == ephemeral)
}

// maySetTimes says whether a set may change the times of a node.
func maySetTimes(n *node, op *coordpb.Op) bool {
	switch {
	case op.TtlMs == 0 && op.LingerMs == 0:
		return true
	case n.stat.Kind != ephemeral, op.TtlMs != 0 && op.TtlMs != -1:
		return false
	}
	return op.LingerMs == 0 || op.LingerMs == -1 || within(op.LingerMs, znode.MaxLinger)
}

func (n *node) setTimes(op *coordpb.Op) {
	if op.TtlMs == -1 {
		n.stat.TtlMs = 0
	}
	if op.LingerMs != 0 {
		n.stat.LingerMs = max(op.LingerMs, 0)
	}
}

// touch marks the node as set.
func (n *node) touch(zxid uint64) {
	n.stat.Version++
	n.stat.Mzxid, n.stat.MtimeMs = zxid, time.Now().UnixMilli()
}

// outlive makes an ephemeral whose session has ended a node with a time to live.
func (t *tx) outlive(path string, n *node) {
	n.stat.Kind, n.stat.EphemeralOwner = withTTL, 0
	n.stat.TtlMs, n.stat.LingerMs = n.stat.LingerMs, 0
	n.touch(t.c.zxid)
	t.add(coordpb.EventType_EVENT_CHANGED, path, n)
}

// watchTime deletes the node at path, if it has a time to live, once it was not
// set for so long. c.mu is held.
func (c *Cluster) watchTime(path string) {
	n := c.nodes[path]
	if n == nil || n.stat.TtlMs == 0 {
		return
	}
	czxid, mzxid := n.stat.Czxid, n.stat.Mzxid
	c.timers = append(c.timers, time.AfterFunc(time.Duration(n.stat.TtlMs)*time.Millisecond, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for c.frozen {
			c.thawed.Wait()
		}
		n := c.nodes[path]
		switch {
		case n == nil || n.stat.Czxid != czxid || n.stat.Mzxid != mzxid || n.stat.TtlMs == 0:
			return
		case len(n.children) > 0:
			c.watchTime(path) // and look again
			return
		}
		c.zxid++
		t := &tx{c: c, cause: coordpb.Cause_CAUSE_REAPED}
		t.remove(path)
		c.publish(t)
	}))
}

// stopTimers ends the deletions to come.
func (c *Cluster) stopTimers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.timers {
		t.Stop()
	}
}

// ephemerals lists those of a session at a path or below.
func (c *Cluster) ephemerals(r *coordpb.Read, session uint64) *coordpb.ReadResult {
	if r.Session != 0 {
		session = r.Session
	}
	out := &coordpb.ReadResult{}
	for _, p := range c.pathsLocked("/") {
		n := c.nodes[p]
		if n.stat.EphemeralOwner == session && session != 0 && covers(r.Path, p) && p > r.After {
			out.Names = append(out.Names, p)
		}
	}
	if len(out.Names) > c.PageSize {
		out.Names, out.More = out.Names[:c.PageSize], true
	}
	return out
}
