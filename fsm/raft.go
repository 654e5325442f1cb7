package fsm

import (
	"fmt"
	"io"

	"github.com/hashicorp/raft"
)

// RaftFSM is a Machine as Raft calls it. It is a ConfigurationStore, so that
// the machine's index follows membership entries and can reach Raft's commit
// index; it is no BatchingFSM, which would not hear of them.
type RaftFSM struct {
	m *Machine
	// OnConfiguration, if set before Raft starts, hears of each membership that
	// was committed, on Raft's applying goroutine: it must not block or call
	// Raft.
	OnConfiguration func(index uint64, c raft.Configuration)

	stopped error // used on Raft's applying goroutine only
}

var (
	_ raft.FSM                = (*RaftFSM)(nil)
	_ raft.ConfigurationStore = (*RaftFSM)(nil)
)

// Raft returns the machine as a raft.FSM.
func (m *Machine) Raft() *RaftFSM { return &RaftFSM{m: m} }

// Apply implements raft.FSM. The answer to the proposer is nil: who waits for a
// command hears of it through the Hook. An entry that cannot be applied ends
// the process (Options.Fatal).
func (f *RaftFSM) Apply(l *raft.Log) any {
	if f.stopped != nil {
		return nil
	}
	if l.Type != raft.LogCommand {
		f.m.raiseIndex(l.Index)
		return nil
	}
	if err := f.m.ApplyEntry(l.Index, l.Term, l.Data); err != nil {
		f.stop(err)
	}
	return nil
}

// StoreConfiguration implements raft.ConfigurationStore.
func (f *RaftFSM) StoreConfiguration(index uint64, c raft.Configuration) {
	if f.stopped != nil { // who waits for the index would read what lacks an entry
		return
	}
	f.m.raiseIndex(index)
	if f.OnConfiguration != nil {
		f.OnConfiguration(index, c)
	}
}

// Snapshot implements raft.FSM.
func (f *RaftFSM) Snapshot() (raft.FSMSnapshot, error) {
	if f.stopped != nil {
		return nil, f.stopped
	}
	return raftSnapshot{f.m.Snapshot()}, nil
}

// Restore implements raft.FSM. The caller closes the snapshot.
func (f *RaftFSM) Restore(snapshot io.ReadCloser) error { return f.m.Restore(snapshot) }

// stop reports that the replica must stop. Should the process live on for a
// moment, nothing more is applied and no snapshot is taken.
func (f *RaftFSM) stop(err error) {
	f.stopped = err
	if f.m.opts.Fatal == nil {
		panic(fmt.Sprintf("fsm: %v", err))
	}
	f.m.opts.Fatal(err)
}

type raftSnapshot struct{ image *Image }

// Persist implements raft.FSMSnapshot.
func (s raftSnapshot) Persist(sink raft.SnapshotSink) error {
	if err := s.image.Encode(sink); err != nil {
		_ = sink.Cancel() // the first error says why
		return err
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (raftSnapshot) Release() {}
