package cluster

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// snapshotStall is how long the bytes of an incoming snapshot may stand still
// before the connection is given up.
const snapshotStall = 2 * time.Second

var (
	// errSnapshotCovered is returned when a snapshot brings nothing that this
	// server does not have.
	errSnapshotCovered = errors.New("snapshot is older than what this server has")
	// errLogReplaced is the cause of a restart after a snapshot was installed over
	// a longer log of other entries.
	errLogReplaced = errors.New("a snapshot replaced a longer log: restart to go on from it")
)

// inbox stands between the library's transport and Raft and looks at
// incoming snapshots. A snapshot can arrive late: the leader gave up on it, sent
// it again, and we have acknowledged entries since. Raft checks only its term,
// restores it, and deletes the whole log, acknowledged entries included, which
// then may be on no majority any more. So a snapshot that we have the contents of
// is read, answered and forgotten.
//
// The look at the log counts only as long as Raft does nothing else. It is
// therefore taken twice: when the snapshot comes in, to be quick, and again when
// Raft asks for its first byte; that is on Raft's main loop, where nothing can
// be appended at the same time.
//
// The library waits for the bytes on that loop and sets no deadline. If the
// sender is frozen, this server could not even vote. So the connection is closed
// when nothing comes for snapshotStall.
//
// Entries that have no room on the disk are refused here: Raft takes a write that
// fails for the end of its log store. To the leader it is as if we could not be
// reached; it tries again, ever more slowly, and its heartbeats go on.
//
// Of incoming entries it takes away those that our newest snapshot holds: they
// are committed, so they are the leader's too, and there may be nothing left to
// compare them with.
type inbox struct {
	cfg  transportConfig
	in   <-chan raft.RPC
	out  chan raft.RPC // unbuffered, as the library's: who sends waits for Raft
	done chan struct{}
	wg   sync.WaitGroup
	node atomic.Pointer[raft.Raft]

	// door is passed by what does not come by in run, so that an election of our
	// own can keep it out.
	door     turnstile
	stands   chan *standing           // unbuffered
	standing atomic.Pointer[standing] // the last one
}

func newInbox(cfg transportConfig, in <-chan raft.RPC) *inbox {
	g := &inbox{cfg: cfg, in: in, out: make(chan raft.RPC), done: make(chan struct{}), stands: make(chan *standing)}
	g.wg.Go(g.run)
	return g
}

// run passes messages on one by one. Only snapshots leave the line: one that is
// being read must not hold up a vote.
func (g *inbox) run() {
	for {
		select {
		case rpc := <-g.in:
			switch req := rpc.Command.(type) {
			case *raft.InstallSnapshotRequest:
				g.wg.Go(func() { g.snapshot(rpc, req) })
				continue
			case *raft.TimeoutNowRequest:
				if !g.transfer(rpc) {
					return
				}
				continue
			case *raft.AppendEntriesRequest:
				skipCovered(req, g.cfg.store.snapshot())
				if err := g.room(req); err != nil {
					rpc.Respond(nil, err) // buffered by the library
					continue
				}
			}
			if !g.pass(rpc) {
				return
			}
		case s := <-g.stands:
			s.begun <- g.stand(s)
		case <-g.done:
			return
		}
	}
}

// room says why the entries of a message are not added to the log.
func (g *inbox) room(req *raft.AppendEntriesRequest) error {
	if g.cfg.accepts == nil || len(req.Entries) == 0 {
		return nil
	}
	return g.cfg.accepts(sizeOf(req.Entries))
}

func (g *inbox) pass(rpc raft.RPC) bool {
	select {
	case g.out <- rpc:
		return true
	case <-g.done:
		return false // the sender's connection is closed, nobody waits for an answer
	}
}

// skipCovered makes a message that begins before the end of our snapshot begin
// there. What the leader makes of the answer stays true: we have all it sent.
func skipCovered(req *raft.AppendEntriesRequest, snap logPosition) {
	if req.PrevLogEntry >= snap.index || isHeartbeat(req) {
		return
	}
	for len(req.Entries) > 0 && req.Entries[0].Index <= snap.index {
		req.Entries = req.Entries[1:]
	}
	req.PrevLogEntry, req.PrevLogTerm = snap.index, snap.term
}

func (g *inbox) snapshot(rpc raft.RPC, req *raft.InstallSnapshotRequest) {
	body := &snapshotReader{r: rpc.Reader, stalled: func() { g.cfg.net.closeRaftFrom(serverID(req.ID)) }}
	if g.covered(req) {
		g.refuse(rpc, req, body)
		return
	}
	replaces := g.replacesLonger(req)
	body.check = func() error {
		if g.covered(req) {
			return errSnapshotCovered
		}
		replaces = g.replacesLonger(req)
		return nil
	}
	answer := make(chan raft.RPCResponse, 1)
	if !g.door.enter(g.done) {
		return
	}
	passed := g.pass(raft.RPC{Command: rpc.Command, Reader: body, RespChan: answer})
	g.door.leave()
	if !passed {
		return
	}
	select {
	case a := <-answer:
		rpc.RespChan <- a // buffered by the library
		if r, ok := a.Response.(*raft.InstallSnapshotResponse); ok && a.Error == nil && r.Success && replaces {
			g.fail(fmt.Errorf("snapshot of index %d: %w", req.LastLogIndex, errLogReplaced))
		}
	case <-g.done:
	}
}

func (g *inbox) fail(err error) {
	if g.cfg.fail != nil {
		g.cfg.fail(err)
	}
}

// covered says whether we have all that the snapshot holds: its last entry is in
// our log, or we have applied as far. What was applied was committed, and there
// is only one committed entry for an index.
func (g *inbox) covered(req *raft.InstallSnapshotRequest) bool {
	if r := g.node.Load(); r != nil && r.AppliedIndex() >= req.LastLogIndex {
		return true
	}
	held, err := g.cfg.store.holds(req.LastLogIndex, req.LastLogTerm)
	if err != nil { // what cannot be read must not be deleted for it: it may be on no majority any more
		g.fail(err)
		return true
	}
	return held
}

// replacesLonger says whether our log goes beyond the snapshot with entries that
// are not those behind it. Raft will clear the log and still take its old end for
// its last index, and refuse everything that the leader sends from then on.
func (g *inbox) replacesLonger(req *raft.InstallSnapshotRequest) bool {
	last, _ := g.cfg.store.LastIndex() // from memory: cannot fail
	return last > req.LastLogIndex
}

// refuse reads the snapshot to its end, so that the sender gets to the answer.
// Success says that the sender may go on with the entries behind the snapshot,
// and only a sender of our own term may hear it.
func (g *inbox) refuse(rpc raft.RPC, req *raft.InstallSnapshotRequest, body io.Reader) {
	if _, err := io.Copy(io.Discard, body); err != nil {
		rpc.RespChan <- raft.RPCResponse{Error: err}
		return
	}
	term := uint64(0)
	if r := g.node.Load(); r != nil {
		term = r.CurrentTerm()
	}
	rpc.RespChan <- raft.RPCResponse{Response: &raft.InstallSnapshotResponse{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax},
		Term:      term,
		Success:   term == req.Term,
	}}
}

// close ends the guard. The connections have to be closed before, so that no
// reader of a snapshot waits for bytes.
func (g *inbox) close() {
	close(g.done)
	g.wg.Wait()
}

// snapshotReader runs check before the first byte, and stalled when a read
// takes longer than snapshotStall. After check has failed the bytes can still be
// read: Raft drains what it does not want.
type snapshotReader struct {
	r       io.Reader
	check   func() error // nil after it was called
	stalled func()
}

func (s *snapshotReader) Read(p []byte) (int, error) {
	if check := s.check; check != nil {
		s.check = nil
		if err := check(); err != nil {
			return 0, err
		}
	}
	t := time.AfterFunc(snapshotStall, s.stalled)
	defer t.Stop()
	return s.r.Read(p)
}
