package cluster

import (
	"sync/atomic"
	"testing"
	"time"
)

// A server that is asked how it is answers also while its disk hangs, in the very
// moment in which it becomes one of a cluster.
func TestIdentityCanBeReadWhileTheDiskHangs(t *testing.T) {
	var hanging atomic.Bool
	stuck, goOn := make(chan struct{}, 1), make(chan struct{})
	s, err := openStores(storeConfig{
		dir: t.TempDir(), name: "n1", kind: logStoreBoltDB, log: newRaftLogger(testLog()),
		beforeWrite: func() error {
			if hanging.Load() {
				stuck <- struct{}{}
				<-goOn
				hanging.Store(false)
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	hanging.Store(true)
	adopted := make(chan error, 1)
	go func() { adopted <- s.adoptCluster("0123456789abcdef0123456789abcdef") }()
	<-stuck
	read := make(chan string, 1)
	go func() { read <- s.cluster() }()
	select {
	case id := <-read:
		if id != "" {
			t.Errorf("the cluster is %q before that was written", id)
		}
	case <-time.After(20 * time.Second):
		t.Error("who reads the identity waits for the disk")
	}
	close(goOn)
	if err := <-adopted; err != nil {
		t.Error(err)
	}
	if s.cluster() == "" {
		t.Error("the cluster was not adopted")
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}
