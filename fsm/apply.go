package fsm

import (
	"errors"
	"fmt"
	"math"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// ErrStop is wrapped by every error after which a replica must not go on: its
// state would part from that of the others.
var ErrStop = errors.New("this replica must stop")

// digestEvery bounds how many commands may be applied before the session table
// adds up what was edited, so that a snapshot never has to do it for all.
const digestEvery = 1024

// maxKeptChanges is how long a list of changes is kept for the next command.
const maxKeptChanges = 4096

// maxZxid is the last id that is positive as a signed number.
const maxZxid = zxid.ID(math.MaxInt64)

// ApplyEntry applies the committed entry at index of the given Raft term. data
// is not kept and not changed. An error wraps ErrStop: the entry cannot be
// decoded, or asks for what this build does not know; the machine must not be
// used any further.
func (m *Machine) ApplyEntry(index, term uint64, data []byte) error {
	m.entry.Lock()
	defer m.entry.Unlock()
	if err := m.applyEntry(position{index, term}, data); err != nil {
		return fmt.Errorf("entry %d of term %d: %w: %w", index, term, ErrStop, err)
	}
	return nil
}

func (m *Machine) applyEntry(at position, data []byte) error {
	if last := m.index.Load(); at.index <= last {
		return fmt.Errorf("it is not behind the last one applied, %d", last)
	}
	b, err := openBatch(data)
	if err != nil {
		return err
	}
	m.now = at
	for first, last := true, false; !last; first = false {
		var n int
		if n, last, err = m.decodeChunk(&b); err != nil {
			return err
		}
		m.awaitBuild(n)
		err = m.applyChunk(n, b.clock, first, last)
		m.release(n)
		if err != nil {
			return err
		}
		m.wake()
	}
	return nil
}

// decodeChunk decodes the next commands, outside the lock, and reports whether
// they are the entry's last.
func (m *Machine) decodeChunk(b *batch) (n int, last bool, err error) {
	for ; n < chunkSize; n++ {
		cmd, more, err := b.next()
		if err != nil {
			return 0, false, err
		}
		if !more {
			return n, true, nil
		}
		if err := m.decoded[n].decode(cmd); err != nil {
			return 0, false, err
		}
	}
	return n, len(b.r.b) == 0, nil
}

// release lets go of the entry that the first n decoders point into.
func (m *Machine) release(n int) {
	for i := range m.decoded[:n] {
		m.decoded[i].release()
	}
}

// applyChunk applies the first n decoded commands under one hold of the lock.
func (m *Machine) applyChunk(n int, clock int64, first, last bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if maxZxid-m.state.Zxid < chunkSize {
		return fmt.Errorf("transaction ids are used up at %s", m.state.Zxid)
	}
	if first {
		m.beginEntry(clock)
	}
	for i := range m.decoded[:n] {
		m.applyCommand(&m.decoded[i].Command)
		if m.fault != nil {
			return m.fault
		}
	}
	if m.fresh += n; m.fresh >= digestEvery {
		m.state.Sessions.Digest()
		m.fresh = 0
	}
	if last {
		m.endEntry()
	}
	m.publish()
	return nil
}

// beginEntry moves the clock. An entry of a leader that has not opened its
// epoch changes nothing, so neither does its clock.
func (m *Machine) beginEntry(clock int64) {
	m.markLocked(m.now.index - 1)
	if m.now.term != m.state.EpochTerm {
		return
	}
	m.state.Clock = max(m.state.Clock, clockAt(m.state.FeatureLevel, clock))
	m.state.Sessions.ForgetRequests(m.state.Clock)
	m.dropIdleRestore()
}

func (m *Machine) endEntry() {
	m.state.Index, m.state.Term = m.now.index, m.now.term
	if m.opts.Distort != nil {
		m.opts.Distort(m.now.index, &m.state)
	}
	m.markLocked(m.now.index)
	m.hook.EntryDone(m.now.index, m.now.term, m.state.Zxid)
}

// applyCommand applies one command and tells the hook.
func (m *Machine) applyCommand(c *Command) {
	if cap(m.tx.Changes) > maxKeptChanges {
		m.tx.Changes = nil
	}
	m.tx.Changes = m.tx.Changes[:0]
	m.opened, m.ended, m.swapped = nil, m.ended[:0], false
	r := m.judge(c)
	if m.swapped {
		m.hook.Restored(m.now.index, m.state.Zxid)
	}
	m.hook.Applied(r, m.tx.Changes)
	if s := m.opened; s != nil {
		m.hook.SessionOpened(s.ID, s.Protocol)
	}
	for _, e := range m.ended {
		m.hook.SessionEnded(e.id, e.by, e.reason)
	}
}

// judge finds out whether the command is to be done, and does it.
func (m *Machine) judge(c *Command) *Result {
	if c.Kind != CmdNewEpoch && m.now.term != m.state.EpochTerm {
		return newResult(c, StatusAgain, ErrOutdated)
	}
	if err := checkLine(c); err != nil {
		return newResult(c, StatusDone, err)
	}
	switch c.Line.kind() {
	case lineSession:
		return m.onSessionLine(c)
	case lineServer:
		return m.onServerLine(c)
	default:
		return m.do(c)
	}
}

// do executes a command whose turn it is.
func (m *Machine) do(c *Command) *Result {
	switch c.Kind {
	case CmdNewEpoch:
		return m.newEpoch(c)
	case CmdBoot:
		return m.boot(c)
	case CmdOpen:
		return m.open(c)
	case CmdAttach:
		return m.attach(c)
	case CmdClose:
		return m.close(c)
	case CmdWrite:
		return m.write(c)
	case CmdSkip:
		return skip(c)
	case CmdIdentities:
		return m.setIdentities(c)
	case CmdExpire:
		return m.expire(c)
	case CmdSuspect:
		return m.suspect(c)
	case CmdUnsuspect:
		return m.unsuspect(c)
	case CmdReap:
		return m.reap(c)
	case CmdTrim:
		return m.trim(c)
	case CmdKill:
		return m.kill(c)
	case CmdFeature:
		return m.raiseFeature(c)
	case CmdRemoveServer:
		return m.removeServer(c)
	case CmdRestoreBegin:
		return m.restoreBegin(c)
	case CmdRestoreChunk:
		return m.restoreChunk(c)
	case CmdRestoreCommit:
		return m.restoreCommit(c)
	}
	return newResult(c, StatusDone, ErrUnimplemented) // the decoder knows no other
}

// begin takes the next transaction id and returns the transaction.
func (m *Machine) begin(caller *znode.Caller, cause znode.Cause) *znode.Tx {
	m.state.Zxid = m.state.Zxid.Next()
	m.tx = znode.Tx{
		Zxid: m.state.Zxid, Time: m.state.Clock,
		Caller: caller, Cause: cause, Changes: m.tx.Changes,
	}
	return &m.tx
}

// endSession takes a session and its ephemerals out, in the transaction that
// was begun.
func (m *Machine) endSession(tx *znode.Tx, id session.ID, reason session.EndReason) {
	by := m.state.Sessions.Get(id).Protocol
	m.state.Tree.EndSession(tx, id, reason.Unclean())
	m.state.Sessions.End(id, reason, tx.Zxid, tx.Time)
	delete(m.callers, id)
	m.ended = append(m.ended, endedSession{id, by, reason})
}
