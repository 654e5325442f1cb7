package cluster

import (
	"math"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// raftTimes are the settings raft.heartbeat, raft.election and raft.lease. A zero
// field has the default.
type raftTimes struct {
	heartbeat time.Duration // a follower without a message for so long stands; 200 ms
	election  time.Duration // a candidate without a majority for so long tries again; 200 ms
	lease     time.Duration // a leader without a majority for so long steps down; as the heartbeat
}

const (
	defaultHeartbeat = 200 * time.Millisecond
	defaultElection  = 200 * time.Millisecond
	// commitTimeout bounds how late a follower learns of a commit if the commit
	// message is lost; a quarter of the heartbeat if that is longer.
	commitTimeout = 50 * time.Millisecond
	// maxAppendEntries is how many entries one message may have;
	// maxAppendBytes bounds their size.
	maxAppendEntries = 256
	// initialTrailing is used only until the owner has set it by bytes.
	initialTrailing = 10240
	// trailingLogBytes is how much log stays behind a snapshot at most, so that a
	// follower that was away for a moment does not need the whole snapshot.
	trailingLogBytes = 64 << 20
	// never is long enough for raft's own snapshot timer, which must not fire:
	// it counts entries, and ours are batches. The timer is randomised up to
	// twice the value, which must not overflow.
	never = 10 * 365 * 24 * time.Hour
)

func (t raftTimes) withDefaults() raftTimes {
	if t.heartbeat == 0 {
		t.heartbeat = defaultHeartbeat
	}
	if t.election == 0 {
		t.election = defaultElection
	}
	if t.lease == 0 {
		t.lease = t.heartbeat
	}
	return t
}

// newRaftConfig returns the configuration of the Raft of server id, checked.
func newRaftConfig(id serverID, times raftTimes, log hclog.Logger) (*raft.Config, error) {
	times = times.withDefaults()
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(id)
	c.ProtocolVersion = 3
	c.HeartbeatTimeout = times.heartbeat
	c.ElectionTimeout = times.election
	c.LeaderLeaseTimeout = times.lease
	c.CommitTimeout = max(commitTimeout, times.heartbeat/4)
	c.MaxAppendEntries = maxAppendEntries
	c.TrailingLogs = initialTrailing
	c.SnapshotThreshold = math.MaxUint64
	c.SnapshotInterval = never
	c.PreVoteDisabled = false
	c.NoLegacyTelemetry = true
	c.Logger = log
	return c, raft.ValidateConfig(c)
}

// setTrailingLogs makes the next snapshot leave about size bytes of log. Call it
// right before each snapshot.
func setTrailingLogs(r *raft.Raft, log *logStore, size uint64) error {
	c := r.ReloadableConfig()
	c.TrailingLogs = log.entriesWithin(size)
	return r.ReloadConfig(c)
}
