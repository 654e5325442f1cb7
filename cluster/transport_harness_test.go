package cluster

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// testLog shows what a failed test logged, if V is set in the environment.
func testLog() *slog.Logger {
	if os.Getenv("V") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// listFSM is a state machine that is the list of its commands.
type listFSM struct {
	mu   sync.Mutex
	cmds []string
	term uint64 // of the last command
	hear func(*raft.Log)
}

func (f *listFSM) Apply(l *raft.Log) any {
	f.mu.Lock()
	f.cmds = append(f.cmds, fmt.Sprintf("%d:%s", l.Index, l.Data))
	f.term = l.Term
	hear := f.hear
	f.mu.Unlock()
	if hear != nil {
		hear(l)
	}
	return nil
}

func (f *listFSM) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.cmds...)
}

func (f *listFSM) Snapshot() (raft.FSMSnapshot, error) {
	return listSnapshot(strings.Join(f.list(), "\n")), nil
}

func (f *listFSM) Restore(r io.ReadCloser) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cmds = nil
	if len(b) > 0 {
		f.cmds = strings.Split(string(b), "\n")
	}
	return nil
}

type listSnapshot string

func (s listSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write([]byte(s)); err != nil {
		return err
	}
	return sink.Close()
}

func (listSnapshot) Release() {}

// memBackend is a log in memory whose appends can be made slow.
type memBackend struct {
	*raft.InmemStore
	slow func([]*raft.Log) // nil: at once
	// slowTerm is called before a term is written.
	slowTerm func()
}

func (b *memBackend) SetUint64(key []byte, n uint64) error {
	if b.slowTerm != nil {
		b.slowTerm()
	}
	return b.InmemStore.SetUint64(key, n)
}

func (b *memBackend) StoreLogs(l []*raft.Log) error {
	if b.slow != nil {
		b.slow(l)
	}
	return b.InmemStore.StoreLogs(l)
}

func (b *memBackend) Close() error { return nil }

// testNode is a Raft server over a memory network.
type testNode struct {
	id    serverID
	host  string
	net   *peerNet
	tr    *transport
	back  *memBackend
	log   *logStore
	snaps *snapshotStore
	fsm   *listFSM
	raft  *raft.Raft
	fails chan error
}

type testCluster struct {
	t     *testing.T
	mem   *memNet
	id    string // cluster id
	nodes []*testNode
}

type testOptions struct {
	withoutClamp bool
	faults       func(n *testNode) transportFaults
	trailing     uint64
}

// newTestCluster starts n servers that have one configuration.
func newTestCluster(t *testing.T, n int, opt testOptions) *testCluster {
	t.Helper()
	c := &testCluster{t: t, mem: newMemNet(), id: newClusterID()}
	var conf raft.Configuration
	for i := range n {
		id, err := newServerID(fmt.Sprintf("n%d", i+1))
		if err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, &testNode{id: id, host: id.name()})
		conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
	}
	for _, node := range c.nodes {
		c.start(node, conf, opt)
	}
	return c
}

func (c *testCluster) start(n *testNode, conf raft.Configuration, opt testOptions) {
	c.t.Helper()
	n.fails = make(chan error, 8)
	n.net = newPeerNet(peerNetConfig{
		self: n.id, cluster: func() string { return c.id }, listener: c.mem.listen(n.host), dial: c.mem.dialer(n.host),
		resolve: func(id serverID) (string, error) { return id.name(), nil }, log: testLog(),
	})
	n.back = &memBackend{InmemStore: raft.NewInmemStore()}
	var err error
	if n.log, err = newLogStore(n.back, newDiskWatch(0, func(err error) { n.fails <- err })); err != nil {
		c.t.Fatal(err)
	}
	tc := transportConfig{
		net: n.net, log: newRaftLogger(testLog().With("node", n.host)), store: n.log,
		fail: func(err error) { n.fails <- err }, withoutClamp: opt.withoutClamp,
	}
	if opt.faults != nil {
		tc.faults = opt.faults(n)
	}
	n.tr = newTransport(tc)
	if n.snaps, err = openSnapshots(c.t.TempDir(), tc.log); err != nil {
		c.t.Fatal(err)
	}
	n.snaps.logBegin, n.snaps.onNew = n.log.begin, n.log.setSnapshot
	n.fsm = &listFSM{}
	cfg, err := newRaftConfig(n.id, raftTimes{}, tc.log)
	if err != nil {
		c.t.Fatal(err)
	}
	if opt.trailing > 0 {
		cfg.TrailingLogs = opt.trailing
	}
	if err := raft.BootstrapCluster(cfg, n.log, n.back.InmemStore, n.snaps, n.tr, conf); err != nil {
		c.t.Fatal(err)
	}
	if n.raft, err = raft.NewRaft(cfg, n.fsm, n.log, n.back, n.snaps, n.tr); err != nil {
		c.t.Fatal(err)
	}
	n.tr.setRaft(n.raft)
}

func (c *testCluster) stop() {
	for _, n := range c.nodes {
		_ = n.raft.Shutdown().Error()
	}
	for _, n := range c.nodes {
		_ = n.net.close()
	}
}

// leader waits for a leader other than not.
func (c *testCluster) leader(not *testNode) *testNode {
	c.t.Helper()
	var found *testNode
	c.wait("a leader", func() bool {
		for _, n := range c.nodes {
			if n != not && n.raft.State() == raft.Leader {
				found = n
				return true
			}
		}
		return false
	})
	return found
}

// wait polls in fake time until ok, for at most 30 s.
func (c *testCluster) wait(what string, ok func() bool) {
	c.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (c *testCluster) others(n *testNode) []*testNode {
	var o []*testNode
	for _, m := range c.nodes {
		if m != n {
			o = append(o, m)
		}
	}
	return o
}

// isolate cuts n from all others.
func (c *testCluster) isolate(n *testNode) {
	for _, m := range c.others(n) {
		c.mem.cut(n.host, m.host)
	}
}

func (c *testCluster) rejoin(n *testNode) {
	for _, m := range c.others(n) {
		c.mem.heal(n.host, m.host)
	}
}

// unplug breaks the connections of n and lets it make no new ones; plug ends
// that. Unlike with isolate nothing is under way.
func (c *testCluster) unplug(n *testNode) {
	for _, m := range c.others(n) {
		c.mem.refuse(n.host, m.host)
	}
}

func (c *testCluster) plug(n *testNode) {
	for _, m := range c.others(n) {
		c.mem.admit(n.host, m.host)
	}
}

func (c *testCluster) apply(n *testNode, cmd string) {
	c.t.Helper()
	if err := n.raft.Apply([]byte(cmd), 0).Error(); err != nil {
		c.t.Fatalf("apply %s: %v", cmd, err)
	}
}

// lossy loses what its function says.
type lossy struct {
	before, after func(to raft.ServerID, kind rpcKind) error
}

func (l lossy) beforeSend(to raft.ServerID, k rpcKind) error { return l.before(to, k) }

func (l lossy) afterAnswer(to raft.ServerID, k rpcKind) error { return l.after(to, k) }
