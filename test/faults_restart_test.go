package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/seed"
)

// smallLog makes servers write snapshots, and cut their logs, often.
const smallLog = "raft: {snapshot_log_size: 1MiB}\n"

// ZOOKEEPER-2574, ZOOKEEPER-1797: what tidied up old files removed a log that was
// still needed. ZOOKEEPER-4269: a state file that was left half renamed kept the
// server from starting. Here the server is killed at any moment around a
// snapshot, which ends with the removal of the oldest one and of its log.
func TestKillAroundASnapshotLosesNothing(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 1, smallLog)
	p := c.nodes[0]
	r := rand.New(rand.NewPCG(seed.New(t), 3))
	w := startCounters(t, c.endpoints(), 4)
	bulk := dial(t, c.endpoints())
	for range 6 {
		writeBulk(t, bulk, 2<<20) // at least one more snapshot's worth
		taken := make(chan struct{})
		go func() {
			defer close(taken)
			p.trySnapshot()
		}()
		time.Sleep(time.Duration(r.IntN(25)) * time.Millisecond)
		p.kill()
		<-taken
		p.start()
		c.waitReady(20 * time.Second)
		w.waitProgress(20 * time.Second)
	}
	w.stop()
	if log, err := os.ReadFile(p.log()); err != nil || !strings.Contains(string(log), "state restored from a snapshot") {
		t.Errorf("the server never started from a snapshot: the test shows nothing (%v)", err)
	}
}

// writeBulk makes the log grow by so many bytes.
func writeBulk(t testing.TB, cl *client.Client, bytes int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience*time.Minute)
	defer cancel()
	const chunk = 256 << 10
	for range bytes / chunk {
		if _, err := cl.Create(ctx, "/bulk", make([]byte, chunk)); err != nil {
			t.Fatal(err)
		}
		if err := cl.Delete(ctx, "/bulk", client.AnyVersion); err != nil {
			t.Fatal(err)
		}
	}
}

// trySnapshot asks for a snapshot of a server that may end meanwhile.
func (p *process) trySnapshot() {
	conn, err := grpc.NewClient(p.grpc(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, _ = coordpb.NewAdminClient(conn).Snapshot(ctx, &coordpb.SnapshotRequest{})
}

// ClickHouse#48466: writing a snapshot while another one is installed crashed
// the server. etcd PR#20650: tidying up the store meanwhile damaged it; here that
// is the cutting of the log behind each snapshot.
func TestSnapshotsWhileOneIsInstalledDoNoHarm(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, smallLog)
	w := startCounters(t, c.endpoints(), 4)
	bulk := dial(t, c.endpoints())
	behind := c.follower()
	behind.kill()
	writeBulk(t, bulk, 6<<20)
	for _, p := range c.nodes {
		if p != behind {
			p.snapshot()
		}
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	behind.start()
	for _, p := range c.nodes {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
					p.trySnapshot()
				}
			}
		})
	}
	for range 4 {
		writeBulk(t, bulk, 2<<20)
		w.waitProgress(20 * time.Second)
	}
	c.waitReady(30 * time.Second)
	close(stop)
	wg.Wait()
	w.stop()
	c.sameDigests()
	log, err := os.ReadFile(behind.log())
	if err != nil || !strings.Contains(string(log), "state restored from a snapshot") {
		t.Errorf("no snapshot was installed: the test shows nothing (%v)", err)
	}
}

// ZOOKEEPER-4925: a follower that had just caught up became the leader and passed
// a log with a hole on to the third server.
func TestFollowerThatJustCaughtUpPassesEverythingOn(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, smallLog)
	r := rand.New(rand.NewPCG(seed.New(t), 4))
	w := startCounters(t, c.endpoints(), 6)
	for range 3 {
		lead := c.leader()
		var others []*process
		for _, p := range c.nodes {
			if p != lead {
				others = append(others, p)
			}
		}
		catcher, third := others[0], others[1]
		third.kill()
		w.waitProgress(20 * time.Second)
		catcher.kill() // nothing more is acknowledged without it
		catcher.start()
		poll(t, 20*time.Second, "the follower to hear of its leader", func() error {
			st, err := catcher.status()
			if err == nil && st.Leader == "" {
				err = fmt.Errorf("it knows none")
			}
			return err
		})
		time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
		lead.kill()
		third.start()
		w.waitProgress(30 * time.Second)
		lead.start()
		c.waitReady(30 * time.Second)
	}
	w.stop()
	c.sameDigests()
}
