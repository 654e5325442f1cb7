package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// hungLog never comes back from a write.
type hungLog struct {
	*raft.InmemStore
	began chan struct{}
}

func (l hungLog) StoreLogs([]*raft.Log) error {
	close(l.began)
	select {}
}

func (l hungLog) StoreLog(*raft.Log) error { return l.StoreLogs(nil) }

// A leader whose disk hangs does not look at the wish to hand over, and Raft forgets
// it at its end. Who waits is told.
func TestWishToHandOverEndsWithRaft(t *testing.T) {
	store, snaps := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	address, trans := raft.NewInmemTransport("")
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger = "n1", newRaftLogger(testLog())
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	must(t, raft.BootstrapCluster(conf, store, store, snaps, trans, raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: address}}}))
	log := hungLog{store, make(chan struct{})}
	r, err := raft.NewRaft(conf, nil, log, store, snaps, trans)
	must(t, err)
	<-log.began // the first entry of its term
	f := r.LeadershipTransfer()
	over := make(chan struct{})
	endWith(f, over)
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		t.Fatalf("it was answered, which proves nothing: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	r.Shutdown()
	close(over)
	select {
	case err := <-done:
		if !errors.Is(err, raft.ErrRaftShutdown) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("who waits is not told")
	}
}
