package server

import (
	"context"
	"time"

	"github.com/coordd/coord/cluster"
)

func (c collector) collectRaft(out collection) {
	s, st := c.s, c.s.cluster.Status()
	out.gauge("coord_raft_is_leader", "1 if this server leads.", truth(st.Leading))
	out.gauge("coord_raft_has_leader", "1 if this server knows a leader.", truth(st.Leader != ""))
	out.gauge("coord_raft_term", "Raft's term.", float64(st.Term))
	out.counter("coord_raft_leader_changes_total", "Leaderships that began since the start of the server.", s.hub.leaders.Load())
	out.gauge("coord_raft_last_contact_seconds", "Time since this server heard of the leader; 0 at the leader.", st.LastContact.Seconds())
	out.gauge("coord_raft_last_index", "Index of the last entry in the log.", float64(st.LastIndex))
	out.gauge("coord_raft_commit_index", "Index of the last entry known to be committed.", float64(st.CommitIndex))
	out.gauge("coord_raft_applied_index", "Index of the last entry applied.", float64(st.AppliedIndex))
	out.gauge("coord_stale_age_seconds", "Time since this server knew to have everything that was committed.", st.StaleAge.Seconds())
	out.gauge("coord_feature_level", "Level of behaviour that the servers have agreed on.", float64(st.FeatureLevel))
	out.gauge("coord_digest_alarm", "1 while the servers' states differ and no majority has the same one: somebody must look.", truth(st.Alarm != ""))
	out.gauge("coord_digest_mark_index", "Log index of the newest digest that this server has noted for comparison.", float64(c.s.cluster.MarkIndex()))
	out.gauge("coord_ready", "1 if clients should come here.", truth(st.Ready))
	out.histogram("coord_raft_fsync_duration_seconds", "One append to the log, with its flush to the disk.", &s.metrics.fsync)
	out.histogram("coord_raft_commit_duration_seconds", "A batch at the leader, from the seal until it is applied.", &s.metrics.commit)
	out.histogram("coord_raft_apply_duration_seconds", "One log entry at the state machine.", &s.metrics.apply)
	c.collectProposals(out, &st)
	c.collectStore(out)
	c.collectPeers(out, st.Leading)
}

func (c collector) collectProposals(out collection, st *cluster.Status) {
	counts := c.s.cluster.Counters()
	out.gauge("coord_proposals_pending", "Proposals of this server that are unanswered.", float64(st.Pending))
	out.counter("coord_proposals_total", "Proposals that entered the cluster here.", counts.Proposals)
	for _, f := range []struct {
		reason string
		n      uint64
	}{
		{"entry_failed", counts.Unsettled},
		{"again", counts.Again},
		{"gap", counts.Gaps},
		{"moved", counts.Moved},
		{"gone", counts.Gone},
		{"old_boot", counts.OldBoot},
		{"malformed", counts.Malformed},
	} {
		out.counter("coord_proposals_failed_total",
			"Proposals that did nothing, by why: in an entry that failed here (entry_failed); applied before their leader's epoch (again) "+
				"or behind a hole (gap), all of which are offered again; of a replaced connection (moved), an ended session (gone) or a "+
				"former start of a server (old_boot); and badly made by this server (malformed).", f.n, "reason", f.reason)
	}
	out.counter("coord_raft_entries_applied_total", "Log entries applied.", counts.Entries)
	out.counter("coord_transactions_total", "Transactions applied.", counts.Transactions)
	out.counter("coord_deduplicated_requests_total", "Requests that had been done before and were answered from memory.",
		counts.Repeated+c.s.hub.deduplicated.Load())
	out.counter("coord_raft_snapshots_total", "Snapshots written.", counts.Snapshots)
	out.counter("coord_raft_snapshots_failed_total", "Snapshots that were due and could not be written; the log is not cut until one is.", counts.SnapshotsFailed)
}

func (c collector) collectStore(out collection) {
	use := c.s.cluster.DiskUse()
	out.histogram("coord_raft_snapshot_duration_seconds", "One snapshot, until it is durable.", &c.s.metrics.snapshot)
	out.gauge("coord_raft_snapshot_size_bytes", "The newest snapshot; 0 if there is none.", float64(use.Snapshot))
	out.gauge("coord_store_size_bytes", "The data directory on the disk, without the reserve.", float64(use.Store))
	out.gauge("coord_store_budget_bytes", "What the data directory takes at most while snapshots succeed and the state does not grow.", float64(use.Budget))
	out.gauge("coord_store_reserve_bytes", "What the reserve on the disk has; less than configured only while the disk is short of room.", float64(use.Held))
	out.gauge("coord_store_low", "1 if less is free than raft.disk_reserve: writes are refused when too few servers have more.", truth(use.Low))
	out.gauge("coord_store_spent", "1 if next to nothing is left, of the reserve either: nothing is written.", truth(use.Spent))
	out.gauge("coord_store_free_bytes", "Room on the disk of the data directory, beside the reserve.", float64(use.Free))
}

// peerStates are the label values of coord_raft_peers: a vote, and the state.
var peerStates = [...][2]string{
	{"voter", "in_contact"},
	{"voter", "lost"},
	{"nonvoter", "in_contact"},
	{"nonvoter", "lost"},
	{"nonvoter", "missing"},
}

// collectPeers counts the members, at the leader, which knows them. The others
// say 0, so that the sum over all servers is right.
func (c collector) collectPeers(out collection, leading bool) {
	counts := map[[2]string]int{}
	if leading {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		for _, m := range c.s.cluster.Members(ctx).Members {
			counts[peerState(&m)]++
		}
	}
	for _, k := range peerStates {
		out.gauge("coord_raft_peers", "Servers of the cluster, as the leader sees them; 0 at the others.", float64(counts[k]),
			"suffrage", k[0], "state", k[1])
	}
}

func peerState(m *cluster.Member) [2]string {
	votes := m.Role == cluster.RoleLeader || m.Role == cluster.RoleVoter
	switch {
	case votes && m.InContact:
		return [2]string{"voter", "in_contact"}
	case votes:
		return [2]string{"voter", "lost"}
	case m.Role == cluster.RoleMissing:
		return [2]string{"nonvoter", "missing"}
	case m.InContact:
		return [2]string{"nonvoter", "in_contact"}
	}
	return [2]string{"nonvoter", "lost"}
}
