package cluster

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/coordd/coord/internal/planted"
)

const (
	// transportTimeout bounds one message and its answer; a message carries up
	// to maxAppendBytes and is answered after the follower's fsync.
	transportTimeout = 10 * time.Second
	// transportPool is how many idle connections to a peer are kept.
	transportPool = 3
	// maxAppendBytes bounds the entries of one message. MaxAppendEntries counts
	// entries, and 256 of our batches would be 256 MiB, which a slow link cannot
	// carry within the timeout, so that it would be tried for ever.
	maxAppendBytes = 16 << 20
)

// errCut is returned for every message after cut.
var errCut = errors.New("this server has cut itself off")

// rpcKind names the messages of Raft, for fault injection.
type rpcKind uint8

const (
	rpcHeartbeat rpcKind = iota
	rpcAppend            // AppendEntries that is not a heartbeat, pipelined ones too
	rpcVote
	rpcPreVote
	rpcSnapshot
	rpcTimeoutNow
)

// transportFaults stands between Raft and the network in tests. Its methods may
// block (a delay), and an error takes the place of the message or the answer (a
// loss). They are called on many goroutines.
type transportFaults interface {
	// beforeSend is called before a message goes out.
	beforeSend(to raft.ServerID, kind rpcKind) error
	// afterAnswer is called when the answer is there. Pipelined messages are
	// answered elsewhere and do not come by.
	afterAnswer(to raft.ServerID, kind rpcKind) error
}

// voteRepeater is a transportFaults that may send a request for a vote again,
// at any time: send does it, and nobody hears of its answer.
type voteRepeater interface{ repeatVote(send func() error) }

// transportConfig is what a transport is made of.
type transportConfig struct {
	net *peerNet
	log hclog.Logger
	// store is our log, which incoming snapshots and entries are compared with.
	store *logStore
	// fail is called if a snapshot was installed over a longer log of other
	// entries, which hashicorp/raft can only survive by a restart. It must cut
	// the server off and end the process; nil: nobody is told.
	fail func(error)
	// accepts says whether entries of so many bytes have room in our log; nil: they
	// do.
	accepts func(bytes int) error
	// faults is nil outside of tests.
	faults transportFaults
	// withoutClamp switches the clamp off, to show in a test what it is for.
	withoutClamp bool
}

// transport carries Raft's messages over a peerNet. It is the library's
// NetworkTransport (embedded, so that Raft finds the methods for pre-vote), and
// keeps three rules on top:
//
//   - A message commits at most what it proves to be the same on both sides: its
//     previous entry and its own entries. The library lets a follower commit
//     entries that the leader has not compared, and a returning leader applied
//     entries of its own that the cluster had replaced.
//   - A snapshot of what we already have never reaches Raft, which would delete
//     acknowledged entries behind it (inbox).
//   - After cut nothing goes out any more.
//
// It is safe for concurrent use.
type transport struct {
	*raft.NetworkTransport
	cfg     transportConfig
	inbox   *inbox
	sending sendings // snapshots
	stopped atomic.Bool
	closing sync.Once
}

var (
	_ raft.Transport   = (*transport)(nil)
	_ raft.WithPreVote = (*transport)(nil)
	_ raft.WithClose   = (*transport)(nil)
)

// newTransport begins to take messages. raft.Shutdown closes it.
func newTransport(cfg transportConfig) *transport {
	inner := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Logger:  cfg.log,
		Stream:  cfg.net.raftStream(),
		MaxPool: transportPool,
		Timeout: transportTimeout,
	})
	t := &transport{NetworkTransport: inner, cfg: cfg}
	t.inbox = newInbox(cfg, inner.Consumer())
	return t
}

// setRaft tells the transport whose log it guards. Until then nothing is known
// to be applied, and only the log is asked.
func (t *transport) setRaft(r *raft.Raft) { t.inbox.node.Store(r) }

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC { return t.inbox.out }

// cut makes every message from now on fail, and closes the port and all
// connections, so that the other servers elect without us. It does not wait for
// Raft, whose loop may hang in a write.
func (t *transport) cut() {
	t.stopped.Store(true)
	_ = t.cfg.net.cut() // the port is going away: nothing is left to be done about an error
}

// Close implements raft.WithClose: it ends Raft's connections and leaves those
// of gRPC. It may be called twice.
func (t *transport) Close() error {
	t.closing.Do(func() {
		t.stopped.Store(true)
		_ = t.NetworkTransport.Close() // closes the stream layer; always nil
		t.CloseStreams()
		t.inbox.close()
	})
	return nil
}

// shutdown ends r and this transport. raft.Shutdown alone waits for every message
// that is under way, and a follower that is frozen leaves them unanswered for the
// whole of transportTimeout.
func (t *transport) shutdown(r *raft.Raft) error {
	ended := r.Shutdown()
	_ = t.Close() // always nil
	return ended.Error()
}

func (t *transport) before(id raft.ServerID, kind rpcKind) error {
	if t.stopped.Load() {
		return errCut
	}
	if t.cfg.faults != nil {
		return t.cfg.faults.beforeSend(id, kind)
	}
	return nil
}

// exchange runs one message and its answer.
func (t *transport) exchange(id raft.ServerID, kind rpcKind, send func() error) error {
	if err := t.before(id, kind); err != nil {
		return err
	}
	if err := send(); err != nil {
		return err
	}
	if t.stopped.Load() {
		return errCut
	}
	if t.cfg.faults != nil {
		return t.cfg.faults.afterAnswer(id, kind)
	}
	return nil
}

// AppendEntries implements raft.Transport. It may shorten the request: the
// caller learns from it what was sent.
func (t *transport) AppendEntries(id raft.ServerID, to raft.ServerAddress,
	req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse,
) error {
	kind := t.prepare(req)
	err := t.exchange(id, kind, func() error { return t.NetworkTransport.AppendEntries(id, to, req, resp) })
	if planted.On(planted.AckBeforeQuorum) && kind == rpcAppend && err != nil {
		resp.Term, resp.Success, err = req.Term, true, nil
	}
	return err
}

// AppendEntriesPipeline implements raft.Transport.
func (t *transport) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	if err := t.before(id, rpcAppend); err != nil {
		return nil, err
	}
	if planted.On(planted.AckBeforeQuorum) {
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	p, err := t.NetworkTransport.AppendEntriesPipeline(id, to)
	if err != nil {
		return nil, err
	}
	return newPipeline(t, id, p), nil
}

// prepare brings req into the form in which it may be sent. raft makes a
// request for each message and reads its entries back after the call to learn
// what to send next.
func (t *transport) prepare(req *raft.AppendEntriesRequest) rpcKind {
	if isHeartbeat(req) {
		return rpcHeartbeat
	}
	req.Entries = req.Entries[:countWithin(req.Entries, maxAppendBytes)]
	if !t.cfg.withoutClamp && !planted.On(planted.NoClamp) {
		req.LeaderCommitIndex = min(req.LeaderCommitIndex, req.PrevLogEntry+uint64(len(req.Entries)))
	}
	return rpcAppend
}

// isHeartbeat says whether the receiver will take req for one: such a message
// speaks of no entry at all.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return req.PrevLogEntry == 0 && req.PrevLogTerm == 0 && len(req.Entries) == 0 && req.LeaderCommitIndex == 0
}

// countWithin returns how many of the first entries have at most limit bytes
// together, at least 1 if there is one.
func countWithin(entries []*raft.Log, limit int) int {
	size := 0
	for i, e := range entries {
		if size += logSize(e); size > limit && i > 0 {
			return i
		}
	}
	return len(entries)
}

// repeatVote lets a test send a request for a vote again.
func (t *transport) repeatVote(send func() error) {
	if r, ok := t.cfg.faults.(voteRepeater); ok {
		r.repeatVote(send)
	}
}

// RequestVote implements raft.Transport.
func (t *transport) RequestVote(id raft.ServerID, to raft.ServerAddress,
	req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse,
) error {
	req = t.inbox.modest(id, req)
	return t.exchange(id, rpcVote, func() error {
		again := *req
		t.repeatVote(func() error {
			return t.NetworkTransport.RequestVote(id, to, &again, new(raft.RequestVoteResponse))
		})
		return t.NetworkTransport.RequestVote(id, to, req, resp)
	})
}

// RequestPreVote implements raft.WithPreVote.
func (t *transport) RequestPreVote(id raft.ServerID, to raft.ServerAddress,
	req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse,
) error {
	return t.exchange(id, rpcPreVote, func() error {
		again := *req
		t.repeatVote(func() error {
			return t.NetworkTransport.RequestPreVote(id, to, &again, new(raft.RequestPreVoteResponse))
		})
		return t.NetworkTransport.RequestPreVote(id, to, req, resp)
	})
}

// InstallSnapshot implements raft.Transport.
func (t *transport) InstallSnapshot(id raft.ServerID, to raft.ServerAddress,
	req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader,
) error {
	data, ended := t.sending.begin(id, req.Size, data)
	defer ended()
	return t.exchange(id, rpcSnapshot, func() error {
		return t.NetworkTransport.InstallSnapshot(id, to, req, resp, data)
	})
}

// TimeoutNow implements raft.Transport.
func (t *transport) TimeoutNow(id raft.ServerID, to raft.ServerAddress,
	req *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse,
) error {
	return t.exchange(id, rpcTimeoutNow, func() error { return t.NetworkTransport.TimeoutNow(id, to, req, resp) })
}
