package cluster

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
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

// Raft panics when it cannot store its term. A server whose disk has failed ends
// for that reason, and is cut off before Raft goes on.
func TestServerThatIsCutOffDoesNotPanicOverItsTerm(t *testing.T) {
	var failing, cut atomic.Bool
	s, err := openStores(storeConfig{
		dir: t.TempDir(), name: "n1", kind: logStoreBoltDB, log: newRaftLogger(testLog()),
		beforeWrite: func() error {
			if failing.Load() {
				return errors.New("input/output error")
			}
			return nil
		},
		fail: func(error) {
			time.Sleep(50 * time.Millisecond) // another one must wait for the cut, too
			cut.Store(true)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	failing.Store(true)
	var writers sync.WaitGroup
	for range 3 {
		writers.Go(func() {
			if err := s.stable.SetUint64(keyCurrentTerm, 7); err != nil || !cut.Load() {
				t.Errorf("Raft hears %v, cut off: %v", err, cut.Load())
			}
		})
	}
	writers.Wait()
	if err := s.stable.Set([]byte("LastVoteCand"), []byte("n2")); err != nil {
		t.Errorf("Raft hears %v", err)
	}
	if term, err := s.stable.GetUint64(keyCurrentTerm); err == nil {
		t.Errorf("term %d was stored", term)
	}
	if err := s.log.StoreLog(&raft.Log{Index: 1, Term: 1}); err == nil {
		t.Error("an entry was stored")
	}
}

// A server that stops does not wait for ever for a disk that is slow. What Raft
// still does then, when its connections are cut and its files closed, is no panic.
func TestServerThatHasStoppedDoesNotPanicOverItsTerm(t *testing.T) {
	cfg := testStoreConfig(t, t.TempDir(), logStoreBoltDB)
	s, err := openStores(cfg)
	must(t, err)
	must(t, s.close())
	if err := s.stable.SetUint64(keyCurrentTerm, 7); err != nil {
		t.Errorf("Raft hears %v", err)
	}
	if err := s.log.StoreLog(&raft.Log{Index: 1, Term: 1}); err == nil {
		t.Error("an entry was stored")
	}
	s, err = openStores(cfg)
	must(t, err)
	defer s.close()
	if term, err := s.stable.GetUint64(keyCurrentTerm); err == nil {
		t.Errorf("term %d was stored", term)
	}
}
