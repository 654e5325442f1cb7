package cluster

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// nodeHook is the node as the state machine sees it: it passes on what is
// applied, first to Config.Hook, which queues events, and then to who waits.
// All methods run under the machine's write lock.
type nodeHook Node

// Applied implements fsm.Hook.
func (h *nodeHook) Applied(r *fsm.Result, changes []znode.Change) {
	n := (*Node)(h)
	if n.cfg.Hook != nil {
		n.cfg.Hook.Applied(r, changes)
	}
	n.counters.count(r)
	if l := n.live.Load(); l != nil {
		l.applied(r)
	}
	if r.Kind == fsm.CmdBoot {
		n.bootSeen.push()
	}
	n.fwd.applied(r)
}

// SessionOpened implements fsm.Hook.
func (h *nodeHook) SessionOpened(id session.ID, by session.Protocol) {
	if f := h.cfg.Hook; f != nil {
		f.SessionOpened(id, by)
	}
}

// SessionEnded implements fsm.Hook.
func (h *nodeHook) SessionEnded(id session.ID, by session.Protocol, reason session.EndReason) {
	n := (*Node)(h)
	if n.cfg.Hook != nil {
		n.cfg.Hook.SessionEnded(id, by, reason)
	}
	if l := n.live.Load(); l != nil {
		l.ended(id)
	}
}

// EntryDone implements fsm.Hook.
func (h *nodeHook) EntryDone(index, term uint64, last zxid.ID) {
	n := (*Node)(h)
	if n.cfg.Hook != nil {
		n.cfg.Hook.EntryDone(index, term, last)
	}
	n.lastEntry.Store(&entryMark{index, term})
	n.counters.entries.Add(1)
}

// Restored implements fsm.Hook. What is pending may have been done in the part
// of the log that this server never saw. Offering everything again settles it:
// the number lines answer with the remembered result, or do it now, or say that
// the session moved or is gone.
func (h *nodeHook) Restored(index uint64, last zxid.ID) {
	n := (*Node)(h)
	if n.cfg.Hook != nil {
		n.cfg.Hook.Restored(index, last)
	}
	n.fwd.reofferAll()
	n.bootSeen.push()
}

// stateMachine is the machine as Raft calls it, measured.
type stateMachine struct {
	*fsm.RaftFSM
	node *Node
}

var _ raft.ConfigurationStore = stateMachine{}

// Apply implements raft.FSM.
func (s stateMachine) Apply(l *raft.Log) any {
	if f := s.node.cfg.Faults.Apply; f != nil {
		f(l.Index)
	}
	start := time.Now()
	out := s.RaftFSM.Apply(l)
	if f := s.node.cfg.Timings.Apply; f != nil {
		f(time.Since(start))
	}
	s.node.snapshots.applied(l.Index)
	return out
}

// StoreConfiguration implements raft.ConfigurationStore.
func (s stateMachine) StoreConfiguration(index uint64, c raft.Configuration) {
	s.RaftFSM.StoreConfiguration(index, c)
	s.node.changed.flash()
}

// Restore implements raft.FSM. At a start Raft goes back to an older snapshot if the
// newest cannot be restored. A server of an older release must not: it would serve
// what was before the upgrade until it comes to the entry that raised the cluster.
func (s stateMachine) Restore(r io.ReadCloser) error {
	if f := s.node.restoreFailed.Load(); f != nil && errors.Is(*f, fsm.ErrNewerRelease) {
		_ = r.Close() // it was only read
		return *f
	}
	s.node.restores.Add(1)
	defer s.node.restores.Add(-1)
	err := s.RaftFSM.Restore(r)
	if err != nil {
		s.node.restoreFailed.CompareAndSwap(nil, &err)
	}
	return err
}

// restoreError is why a snapshot could not be opened or restored: raft itself
// says only that it could not.
func (n *Node) restoreError() error {
	for _, p := range []*error{n.stores.snaps.broken.Load(), n.restoreFailed.Load()} {
		if p != nil {
			return *p
		}
	}
	return nil
}

// Counters are totals since the start of the server.
type Counters struct {
	Proposals    uint64 // that entered here
	Entries      uint64 // log entries applied
	Commands     uint64 // in them
	Transactions uint64 // commands that took a zxid
	Repeated     uint64 // commands that had been done before
	Gaps, Again  uint64 // commands that had to be offered again
	Moved        uint64 // commands of a connection that another one has replaced
	Gone         uint64 // commands of a session that had ended
	OldBoot      uint64 // commands of a start of a server that is over
	Malformed    uint64 // proposals of this server that no replica could have read
	Unsettled    uint64 // commands at this leader in entries that failed
	Snapshots    uint64
	// SnapshotsFailed counts those that were due and could not be written.
	SnapshotsFailed uint64
}

type counters struct {
	proposals, entries, commands, transactions, repeated, snapshots, snapshotsFailed atomic.Uint64

	gaps, again, moved, gone, oldBoot, malformed, unsettled atomic.Uint64
}

func (c *counters) count(r *fsm.Result) {
	c.commands.Add(1)
	if r.Zxid != 0 && r.Status == fsm.StatusDone {
		c.transactions.Add(1)
	}
	switch r.Status {
	case fsm.StatusRepeat:
		c.repeated.Add(1)
	case fsm.StatusGap:
		c.gaps.Add(1)
	case fsm.StatusAgain:
		c.again.Add(1)
	case fsm.StatusMoved:
		c.moved.Add(1)
	case fsm.StatusGone:
		c.gone.Add(1)
	case fsm.StatusOldBoot:
		c.oldBoot.Add(1)
	case fsm.StatusDone, fsm.StatusAcknowledged:
	}
}

// Counters returns the totals.
func (n *Node) Counters() Counters {
	c := &n.counters
	return Counters{
		Proposals: c.proposals.Load(), Entries: c.entries.Load(), Commands: c.commands.Load(),
		Transactions: c.transactions.Load(), Repeated: c.repeated.Load(),
		Gaps: c.gaps.Load(), Again: c.again.Load(), Moved: c.moved.Load(), Gone: c.gone.Load(), OldBoot: c.oldBoot.Load(),
		Malformed: c.malformed.Load(), Unsettled: c.unsettled.Load(), Snapshots: c.snapshots.Load(), SnapshotsFailed: c.snapshotsFailed.Load(),
	}
}

func (n *Node) synced(took time.Duration, _, _ int) {
	if f := n.cfg.Timings.Fsync; f != nil {
		f(took)
	}
}
