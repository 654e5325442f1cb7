package fsm

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// startRaft runs one server of a one-server cluster over the stores.
func startRaft(t *testing.T, f raft.FSM, logs *raft.InmemStore, snaps raft.SnapshotStore, bootstrap bool) *raft.Raft {
	t.Helper()
	c := raft.DefaultConfig()
	c.LocalID = "n1"
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	c.Logger = hclog.NewNullLogger()
	_, transport := raft.NewInmemTransport("n1")
	r, err := raft.NewRaft(c, f, logs, logs, snaps, transport)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Shutdown().Error() })
	if bootstrap {
		servers := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "n1"}}}
		if err := r.BootstrapCluster(servers).Error(); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, func() bool { return r.State() == raft.Leader })
	return r
}

func TestIndexReachesRaftsCommitIndexBehindMembershipEntries(t *testing.T) {
	m := New(Options{})
	f := m.Raft()
	if _, ok := any(f).(raft.BatchingFSM); ok {
		t.Fatal("a BatchingFSM does not hear of membership entries")
	}
	configurations := make(chan uint64, 10)
	f.OnConfiguration = func(index uint64, _ raft.Configuration) { configurations <- index }
	logs, snaps := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	r := startRaft(t, f, logs, snaps, true)
	propose := func(c *Command) {
		t.Helper()
		if err := r.Apply(encodeEntry(startClock, c), time.Second).Error(); err != nil {
			t.Fatal(err)
		}
	}
	propose(&Command{Kind: CmdNewEpoch, Epoch: &NewEpoch{Term: r.CurrentTerm(), MinEpoch: 3, ClusterID: "x"}})
	if m.EpochTerm() != r.CurrentTerm() {
		t.Fatalf("epoch of term %d, Raft is at %d", m.EpochTerm(), r.CurrentTerm())
	}
	if err := r.AddNonvoter("n2", "n2", 0, time.Second).Error(); err != nil {
		t.Fatal(err)
	}
	if err := m.WaitIndex(t.Context(), r.CommitIndex()); err != nil {
		t.Fatal(err)
	}
	if last := <-configurations; last == 0 {
		t.Fatal("no membership was told")
	}
	propose(&Command{Kind: CmdBoot, Boot: &Boot{Server: "n1~1", Nonce: 1}})

	if err := r.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	propose(&Command{Kind: CmdBoot, Boot: &Boot{Server: "n2~1", Nonce: 1}})
	digest, index, _ := m.Digest()
	if err := r.Shutdown().Error(); err != nil {
		t.Fatal(err)
	}
	again := New(Options{})
	startRaft(t, again.Raft(), logs, snaps, false)
	if err := again.WaitIndex(t.Context(), index); err != nil {
		t.Fatal(err)
	}
	if d, _, _ := again.Digest(); d != digest {
		t.Fatal("snapshot and log gave another state")
	}
}

func TestBadEntryIsFatalAndNothingIsAppliedAfterIt(t *testing.T) {
	var fatal []error
	m := New(Options{Fatal: func(err error) { fatal = append(fatal, err) }})
	f := m.Raft()
	f.Apply(&raft.Log{Index: 1, Term: 1, Type: raft.LogCommand, Data: []byte("garbage")})
	f.Apply(&raft.Log{Index: 2, Term: 1, Type: raft.LogCommand, Data: encodeEntry(0)})
	f.Apply(&raft.Log{Index: 3, Term: 1, Type: raft.LogBarrier})
	f.StoreConfiguration(4, raft.Configuration{})
	if len(fatal) != 1 || !errors.Is(fatal[0], ErrStop) || m.Index() != 0 {
		t.Fatalf("fatal %v, index %d", fatal, m.Index())
	}
	if _, err := f.Snapshot(); err == nil {
		t.Fatal("a replica that must stop gave a snapshot")
	}
	defer func() {
		if recover() == nil {
			t.Fatal("without Fatal it went on")
		}
	}()
	New(Options{}).Raft().Apply(&raft.Log{Index: 1, Term: 1, Type: raft.LogCommand})
}

type sink struct {
	bytes.Buffer
	fail              error
	closed, cancelled bool
}

func (s *sink) ID() string    { return "sink" }
func (s *sink) Close() error  { s.closed = true; return nil }
func (s *sink) Cancel() error { s.cancelled = true; return nil }
func (s *sink) Write(b []byte) (int, error) {
	if s.fail != nil {
		return 0, s.fail
	}
	return s.Buffer.Write(b)
}

func TestFailedSnapshotIsCancelledNotClosed(t *testing.T) {
	r := newRig(t)
	snap, err := r.m.Raft().Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	bad := &sink{fail: errors.New("full")}
	if err := snap.Persist(bad); !errors.Is(err, bad.fail) || !bad.cancelled || bad.closed {
		t.Fatalf("%v, cancelled %v, closed %v", err, bad.cancelled, bad.closed)
	}
	good := &sink{}
	if err := snap.Persist(good); err != nil || !good.closed || good.cancelled {
		t.Fatalf("%v, cancelled %v, closed %v", err, good.cancelled, good.closed)
	}
	other := New(Options{})
	if err := other.Raft().Restore(io.NopCloser(&good.Buffer)); err != nil {
		t.Fatal(err)
	}
	if d, _, _ := other.Digest(); d != r.digest() {
		t.Fatal("another state")
	}
}
