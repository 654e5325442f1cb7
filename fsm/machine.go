package fsm

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// chunkSize is how many transactions are applied under one hold of the write
// lock: readers wait for a fraction of a millisecond however large the entry.
const chunkSize = 64

// Options are the settings of a Machine. The zero value is usable.
type Options struct {
	// Hook hears what is applied; nil for nobody.
	Hook Hook
	// Logger receives a line for each restore; nil for none.
	Logger *slog.Logger
	// FeatureLevel is the highest level this process knows; 0 means the
	// package's FeatureLevel. Tests of upgrades lower it.
	FeatureLevel uint32
	// Distort is called at the end of each entry and may change the state, for
	// tests of what finds a replica that differs; nil changes nothing.
	Distort func(index uint64, v *View)
	// Fatal is called by the Raft side (see Machine.Raft) with the error of an
	// entry that cannot be applied. It must see to it that the process ends: a
	// replica that cannot follow the log must not go on. nil panics.
	Fatal func(error)
}

// View is the state as a reader sees it, and as it is kept. What it points at
// may only be read, and only while View's f runs.
type View struct {
	Tree     *znode.Tree
	Sessions *session.Table
	// Zxid is the last transaction; after NewEpoch it is the epoch's zeroth.
	Zxid zxid.ID
	// Index and Term are those of the last entry applied in whole. Inside an
	// entry the state is already ahead of them, by whole transactions.
	Index uint64
	Term  uint64
	// Clock is the state clock in ms since 1970. It never goes back.
	Clock int64
	// EpochTerm is the Raft term whose leader opened the present epoch.
	EpochTerm uint64
	ClusterID string
	// FeatureLevel is the level of behaviour agreed on.
	FeatureLevel uint32
	// LastRestore is the last backup that was restored; zero: none was.
	LastRestore Restored

	restoring *staging // a backup on its way; nil: none
}

// Machine is the replicated state of one server. View, Digest and the waits may
// be called from any goroutine; ApplyEntry, Snapshot and Restore come from one
// at a time (Raft's).
type Machine struct {
	opts Options

	// entry is held over a whole entry, outside mu, by whoever must not see
	// half of one.
	entry sync.Mutex

	mu    sync.RWMutex
	state View // guarded by mu

	// The rest is used under the write lock, by the applying goroutine.
	hook    Hook
	now     position                     // of the entry being applied
	fault   error                        // why this replica must stop
	callers map[session.ID]*znode.Caller // of open sessions, made when needed
	tx      znode.Tx                     // reused
	opened  *session.Session             // by the command being applied; nil: none
	ended   []endedSession               // by it, too
	swapped bool                         // by it: the tree is another one
	fresh   int                          // commands since the table was last digested
	decoded [chunkSize]decoder           // used outside mu, under entry

	marks marks

	index, zxid, epochTerm atomic.Uint64 // copies of state for readers without lock
	byIndex, byZxid        waiters
}

// position is where in the log a command stands.
type position struct{ index, term uint64 }

type endedSession struct {
	id     session.ID
	by     session.Protocol
	reason session.EndReason
}

// New returns a machine with an empty state, as every replica begins.
func New(o Options) *Machine {
	if o.Hook == nil {
		o.Hook = noHook{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FeatureLevel == 0 {
		o.FeatureLevel = FeatureLevel
	}
	m := &Machine{opts: o, hook: o.Hook, callers: make(map[session.ID]*znode.Caller)}
	m.state = View{Tree: znode.New(), Sessions: session.NewTable(), FeatureLevel: 1}
	return m
}

// SetHook replaces the hook. Call it before the machine is used.
func (m *Machine) SetHook(h Hook) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = h
}

// View calls f with the state under the read lock: no transaction is applied
// while f runs, and none is half done. f must not keep what it is given.
func (m *Machine) View(f func(v *View)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	f(&m.state)
}

// Index is the log index of the last entry applied in whole. It takes no lock.
func (m *Machine) Index() uint64 { return m.index.Load() }

// Zxid is the last transaction applied. It takes no lock.
func (m *Machine) Zxid() zxid.ID { return zxid.ID(m.zxid.Load()) }

// EpochTerm is the Raft term whose leader opened the present epoch; a leader
// proposes NewEpoch until it is its own. It takes no lock.
func (m *Machine) EpochTerm() uint64 { return m.epochTerm.Load() }

// WaitIndex returns when the entry at index has been applied, or with the
// context's error.
func (m *Machine) WaitIndex(ctx context.Context, index uint64) error {
	return m.byIndex.wait(ctx, &m.index, index)
}

// WaitZxid returns when transaction z has been applied, or with the context's
// error.
func (m *Machine) WaitZxid(ctx context.Context, z zxid.ID) error {
	return m.byZxid.wait(ctx, &m.zxid, uint64(z))
}

// publish makes the state's position visible to readers without lock. Called
// under the write lock; wake afterwards, outside it.
func (m *Machine) publish() {
	m.index.Store(m.state.Index)
	m.zxid.Store(uint64(m.state.Zxid))
	m.epochTerm.Store(m.state.EpochTerm)
}

func (m *Machine) wake() {
	m.byIndex.wake(m.index.Load())
	m.byZxid.wake(m.zxid.Load())
}

// raiseIndex is for entries that carry no command: the index must be able to
// reach Raft's commit index.
func (m *Machine) raiseIndex(index uint64) {
	m.entry.Lock()
	defer m.entry.Unlock()
	m.mu.Lock()
	if index > m.state.Index {
		m.markLocked(index - 1)
		m.state.Index = index
		m.markLocked(index)
	}
	m.publish()
	m.mu.Unlock()
	m.wake()
}
