package cluster

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// commitRetries are the pauses before the commit message is sent again to a
// follower that does not have the entry yet. After them CommitTimeout does.
var commitRetries = []time.Duration{time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond}

// appendSender is the part of a transport that the commit message needs.
type appendSender interface {
	AppendEntries(raft.ServerID, raft.ServerAddress, *raft.AppendEntriesRequest, *raft.AppendEntriesResponse) error
	EncodePeer(raft.ServerID, raft.ServerAddress) []byte
}

// commitNotifier tells followers of a commit at once. By itself Raft tells them
// with the next entries, or after CommitTimeout, and until then a follower can
// neither apply a lone write nor answer who waits for it.
//
// The message is an empty AppendEntries of the term of the committed entry. It
// must be a term that this server has led: with the current term, an old leader
// that has just heard of the next term would depose the true leader of it.
//
// It is safe for concurrent use.
type commitNotifier struct {
	send   appendSender
	header raft.RPCHeader
	wg     sync.WaitGroup
	done   chan struct{}

	mu      sync.Mutex
	closed  bool
	pending map[raft.ServerID]*commitMark // has an entry as long as a goroutine works for the follower
}

// commitMark is the newest commit a follower has to hear of.
type commitMark struct {
	to          raft.ServerAddress
	index, term uint64
	fresh       bool // not yet taken by the goroutine
}

func newCommitNotifier(send appendSender, self serverID) *commitNotifier {
	return &commitNotifier{
		send: send,
		header: raft.RPCHeader{
			ProtocolVersion: raft.ProtocolVersionMax,
			ID:              []byte(self),
			Addr:            send.EncodePeer(raft.ServerID(self), raft.ServerAddress(self)),
		},
		done:    make(chan struct{}),
		pending: make(map[raft.ServerID]*commitMark),
	}
}

// committed tells the followers that the entry index of term is committed. Call
// it only for an entry whose Apply future succeeded here, with the term that the
// state machine saw in it. It does not block; if a follower has not heard of an
// earlier commit yet, it hears of the newer one only.
func (n *commitNotifier) committed(index, term uint64, followers []raft.Server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	for _, f := range followers {
		m := n.pending[f.ID]
		if m == nil {
			m = &commitMark{}
			n.pending[f.ID] = m
			n.wg.Go(func() { n.work(f.ID, m) })
		}
		if index > m.index {
			*m = commitMark{to: f.Address, index: index, term: term, fresh: true}
		}
	}
}

// work sends what is pending for a follower, and ends when nothing is.
func (n *commitNotifier) work(id raft.ServerID, m *commitMark) {
	retry := 0
	for {
		mark, ok := n.take(id, m, retry > 0)
		if !ok {
			return
		}
		if mark.fresh {
			retry = 0
		}
		if !n.tell(id, mark) || retry == len(commitRetries) {
			retry = 0
			continue
		}
		if !n.sleep(commitRetries[retry]) {
			return
		}
		retry++
	}
}

// take returns the newest mark, which is marked as taken. With again it may be
// one that was taken before. If there is none, the follower is forgotten.
func (n *commitNotifier) take(id raft.ServerID, m *commitMark, again bool) (commitMark, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || !m.fresh && !again {
		delete(n.pending, id)
		return commitMark{}, false
	}
	mark := *m
	m.fresh = false
	return mark, true
}

// tell sends the message once and says whether it is worth sending again: the
// follower is in step with us and only lacks the entry.
func (n *commitNotifier) tell(id raft.ServerID, m commitMark) (again bool) {
	req := raft.AppendEntriesRequest{
		RPCHeader:         n.header,
		Term:              m.term,
		PrevLogEntry:      m.index,
		PrevLogTerm:       m.term,
		LeaderCommitIndex: m.index,
	}
	var resp raft.AppendEntriesResponse
	if err := n.send.AppendEntries(id, m.to, &req, &resp); err != nil {
		return false
	}
	return !resp.Success && resp.Term <= m.term && resp.LastLog < m.index
}

func (n *commitNotifier) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-n.done:
		return false
	}
}

// close waits for the goroutines. A message that is under way holds it up until
// the transport is closed, so close that before. It may be called twice.
func (n *commitNotifier) close() {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.done)
	}
	n.mu.Unlock()
	n.wg.Wait()
}
