package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// runRaft starts a Raft of one server on the stores and waits until it leads.
func runRaft(t *testing.T, s *stores) (*raft.Raft, *listFSM, func()) {
	t.Helper()
	mem := newMemNet()
	n := netOf(t, mem, s.server(), "n1", s.cluster())
	tr := newTransport(transportConfig{net: n, log: newRaftLogger(testLog()), store: s.log})
	cfg, err := newRaftConfig(s.server(), raftTimes{20 * time.Millisecond, 20 * time.Millisecond, 10 * time.Millisecond}, newRaftLogger(testLog()))
	if err != nil {
		t.Fatal(err)
	}
	conf := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(s.server()), Address: raft.ServerAddress(s.server())}}}
	if existing, err := raft.HasExistingState(s.log, s.stable, s.snaps); err != nil {
		t.Fatal(err)
	} else if !existing {
		if err := raft.BootstrapCluster(cfg, s.log, s.stable, s.snaps, tr, conf); err != nil {
			t.Fatal(err)
		}
	}
	fsm := &listFSM{}
	r, err := raft.NewRaft(cfg, fsm, s.log, s.stable, s.snaps, tr)
	if err != nil {
		t.Fatal(err)
	}
	tr.setRaft(r)
	for end := time.Now().Add(10 * time.Second); r.State() != raft.Leader; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not lead")
		}
	}
	if err := r.Barrier(10 * time.Second).Error(); err != nil {
		t.Fatal(err)
	}
	return r, fsm, func() { _ = r.Shutdown().Error() }
}

// A server goes through several lives, one of them ended by a kill, with
// snapshots in between, and has all it acknowledged in each.
func TestRaftFindsItsStateAgainInEitherStore(t *testing.T) {
	bothStores(t, func(t *testing.T, kind logStoreKind) {
		dir := t.TempDir()
		s := testStores(t, dir, kind)
		if err := s.adoptCluster(newClusterID()); err != nil {
			t.Fatal(err)
		}
		id := s.server()
		var want []string
		for life := range 4 {
			r, fsm, stop := runRaft(t, s)
			got := fsm.list()
			for i := range got {
				got[i] = got[i][len(got[i])-3:]
			}
			if !slices.Equal(got, want) {
				t.Fatalf("life %d began with %v, want %v", life, got, want)
			}
			for i := range 10 {
				cmd := fmt.Sprintf("%d.%d", life, i)
				if err := r.Apply([]byte(cmd), 0).Error(); err != nil {
					t.Fatal(err)
				}
				want = append(want, cmd)
				if life == 1 && i == 4 {
					if err := setTrailingLogs(r, s.log, trailingLogBytes); err != nil {
						t.Fatal(err)
					}
					if err := r.Snapshot().Error(); err != nil {
						t.Fatal(err)
					}
					if s.log.snapshot().index == 0 || s.log.bytesAfter(s.log.snapshot().index) > 100 {
						t.Errorf("after a snapshot at %v, %d bytes of log are behind it", s.log.snapshot(), s.log.bytesAfter(s.log.snapshot().index))
					}
				}
			}
			if life == 2 {
				dir = copyDir(t, dir) // what a kill leaves
			}
			stop()
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
			s = testStores(t, dir, kind)
			if s.server() != id {
				t.Fatalf("it is %s now, it was %s", s.server(), id)
			}
		}
	})
}
