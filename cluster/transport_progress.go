package cluster

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// sendings knows how far the snapshots have come that this server sends. The zero
// value is ready. It is safe for concurrent use.
//
// Bound: one for each member.
type sendings struct {
	mu sync.Mutex // guards below
	to map[raft.ServerID]*sending
}

// sending is one snapshot on its way. It counts what is read of it.
type sending struct {
	io.Reader
	size int64
	sent atomic.Int64
}

func (s *sending) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.sent.Add(int64(n))
	return n, err
}

// begin returns the reader through which a snapshot of so many bytes is sent, and
// what is to be called at its end.
func (ss *sendings) begin(to raft.ServerID, size int64, data io.Reader) (io.Reader, func()) {
	s := &sending{Reader: data, size: size}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.to == nil {
		ss.to = make(map[raft.ServerID]*sending)
	}
	ss.to[to] = s
	return s, func() {
		ss.mu.Lock()
		defer ss.mu.Unlock()
		if ss.to[to] == s { // else a later one, of a leadership that came again
			delete(ss.to, to)
		}
	}
}

// present is what is being sent to a server, nil if nothing is.
func (ss *sendings) present(to serverID) *sending {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.to[raft.ServerID(to)]
}

// progress says how far the snapshot for a server has come, "" if it gets none.
func (ss *sendings) progress(to serverID) string {
	s := ss.present(to)
	switch {
	case s == nil:
		return ""
	case s.sent.Load() >= s.size: // it has the bytes, and makes its state of them
		return "snapshot sent and being installed"
	default:
		return fmt.Sprintf("snapshot %d %%", s.sent.Load()*100/s.size)
	}
}
