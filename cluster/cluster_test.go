package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// world is a cluster of real nodes over a memory network, in fake time.
type world struct {
	t     *testing.T
	net   *memNet
	peers []Peer
	tune  func(*Config)
	hosts map[string]*host
	// opened is called between Open and Run.
	opened func(*host)
}

// host is one server of a world: its directory outlives its starts.
type host struct {
	w    *world
	peer Peer
	dir  string
	node *Node
	hook *recorder
	skew time.Duration // of its wall clock
	stop context.CancelFunc
	done chan error // holds the result of Run
	dead bool       // killed: its connections are refused

	mu     sync.Mutex
	jumped time.Duration // of its monotonic clock
	fatals []error
}

// inFakeTime runs f in a bubble of fake time with a world of servers n1, n2, ...
func inFakeTime(t *testing.T, servers int, tune func(*Config), f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, servers, tune)
		defer w.close()
		f(w)
	})
}

func newWorld(t *testing.T, servers int, tune func(*Config)) *world {
	w := &world{t: t, net: newMemNet(), tune: tune, hosts: map[string]*host{}}
	for i := range servers {
		name := fmt.Sprintf("n%d", i+1)
		w.peers = append(w.peers, Peer{Name: name, Address: name + ":7421"})
	}
	root := w.tempDir()
	for _, p := range w.peers {
		w.hosts[p.Name] = &host{w: w, peer: p, dir: filepath.Join(root, p.Name)}
	}
	return w
}

// tempDir is in memory where that is possible: fsync is not what is tested.
func (w *world) tempDir() string {
	dir, err := os.MkdirTemp("/dev/shm", "coord-cluster-test-")
	if err != nil {
		return w.t.TempDir()
	}
	w.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (w *world) config(h *host) Config {
	c := Config{
		Name: h.peer.Name, ClusterName: "test", Peers: w.peers, Bootstrap: BootstrapAuto, DataDir: h.dir,
		Logger: testLog(), LogStore: "boltdb", StableBeforeVote: time.Second, DiskReserve: -1,
		Hook: h.hook,
		Net: Net{
			Listen: func(_ context.Context, addr string) (net.Listener, error) { return w.net.listen(addr), nil },
			Dial:   w.net.dialer(h.peer.Address),
		},
		Clock: Clock{Wall: func() time.Time { return time.Now().Add(h.skew) }},
		Fatal: func(err error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.fatals = append(h.fatals, err)
		},
		Info: func() Info { return Info{GRPCAddress: h.peer.Name + ":7420", Ready: true, Version: "test"} },
	}
	start := time.Now()
	c.Clock.Monotonic = func() time.Duration {
		h.mu.Lock()
		defer h.mu.Unlock()
		return time.Since(start) + h.jumped
	}
	if w.tune != nil {
		w.tune(&c)
	}
	return c
}

// start starts the named servers, all if none is named.
func (w *world) start(names ...string) {
	w.t.Helper()
	if len(names) == 0 {
		for _, p := range w.peers {
			names = append(names, p.Name)
		}
	}
	for _, name := range names {
		if err := w.tryStart(name); err != nil {
			w.t.Fatalf("start %s: %v", name, err)
		}
	}
}

func (w *world) tryStart(name string) error {
	h := w.hosts[name]
	for _, p := range w.peers {
		w.net.admit(h.peer.Address, p.Address)
	}
	h.hook, h.dead = &recorder{}, false
	n, err := Open(w.config(h))
	if err != nil {
		return err
	}
	h.node = n
	if w.opened != nil {
		w.opened(h)
	}
	ctx, stop := context.WithCancel(context.Background())
	h.stop, h.done = stop, make(chan error, 1)
	go func() { h.done <- n.Run(ctx) }()
	return nil
}

// shutdown stops servers as SIGTERM does.
func (w *world) shutdown(names ...string) {
	w.t.Helper()
	for _, name := range names {
		h := w.hosts[name]
		if h.node == nil {
			continue
		}
		h.stop()
		if err := <-h.done; err != nil {
			w.t.Errorf("%s ended with %v", name, err)
		}
		h.node = nil
	}
}

// kill breaks all connections of a server first, so that it says no goodbye.
func (w *world) kill(name string) {
	w.t.Helper()
	w.unplug(name)
	w.shutdown(name)
}

// unplug is what the others see of a kill. The server itself goes on for as long
// as it tries to end in order, until it is shut down.
func (w *world) unplug(name string) {
	h := w.hosts[name]
	for _, p := range w.peers {
		if p.Name != name {
			w.net.refuse(h.peer.Address, p.Address)
		}
	}
	h.dead = true
}

// wipe makes a new, empty disk.
func (w *world) wipe(name string) {
	if err := os.RemoveAll(w.hosts[name].dir); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) close() {
	var wg sync.WaitGroup
	for name := range w.hosts {
		wg.Go(func() { w.shutdown(name) })
	}
	wg.Wait()
	synctest.Wait()
}

func (w *world) node(name string) *Node { return w.hosts[name].node }

// eventually waits in fake time.
func (w *world) eventually(within time.Duration, what string, ok func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(within)
	for !ok() {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within %v: %s\n%s", within, what, w.describe())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (w *world) describe() string {
	var b strings.Builder
	for _, p := range w.peers {
		if n := w.node(p.Name); n != nil {
			s := n.Status()
			fmt.Fprintf(&b, "%s: leader %q leading %v term %d applied %d commit %d voter %v formed %v waiting %q pending %d\n",
				s.Name, s.Leader, s.Leading, s.Term, s.AppliedIndex, s.CommitIndex, s.Voter, s.Formed, s.Waiting, s.Pending)
		}
	}
	return b.String()
}

// awaitFormed waits until all running servers are voters and know the leader.
func (w *world) awaitFormed() {
	w.t.Helper()
	w.eventually(20*time.Second, "all servers are voters and know a leader", func() bool {
		for _, h := range w.hosts {
			if h.node == nil {
				continue
			}
			if s := h.node.Status(); !s.Voter || !s.Formed || s.Leader == "" {
				return false
			}
		}
		return w.leader() != ""
	})
}

// leader is the name of the server whose reign is open, if there is just one.
func (w *world) leader() string {
	leader := ""
	for name, h := range w.hosts {
		if h.node != nil && !h.dead && h.node.reign.Load() != nil {
			if leader != "" {
				return ""
			}
			leader = name
		}
	}
	return leader
}

func (w *world) awaitLeader() string {
	w.t.Helper()
	w.eventually(10*time.Second, "a leader", func() bool { return w.leader() != "" })
	return w.leader()
}

func (w *world) followers() []string {
	leader := w.awaitLeader()
	var out []string
	for _, p := range w.peers {
		if p.Name != leader && w.node(p.Name) != nil {
			out = append(out, p.Name)
		}
	}
	return out
}

// recorder remembers what was applied.
type recorder struct {
	mu       sync.Mutex
	done     []*fsm.Result
	ended    map[session.ID]time.Time
	restored int
}

func (r *recorder) Applied(x *fsm.Result, _ []znode.Change) {
	r.mu.Lock()
	if x.Kind == fsm.CmdWrite || x.Kind == fsm.CmdOpen || x.Kind == fsm.CmdSkip {
		r.done = append(r.done, x)
	}
	r.mu.Unlock()
}

func (r *recorder) SessionOpened(session.ID, session.Protocol) {}

func (r *recorder) SessionEnded(id session.ID, _ session.Protocol, _ session.EndReason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil {
		r.ended = make(map[session.ID]time.Time)
	}
	r.ended[id] = time.Now()
}

func (r *recorder) EntryDone(uint64, uint64, zxid.ID) {}

func (r *recorder) Restored(uint64, zxid.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restored++
}

// mailbox is a Waiter that keeps what it is told.
type mailbox chan *fsm.Result

func newMailbox() mailbox { return make(mailbox, 4) }

func (i mailbox) Applied(r *fsm.Result) { i <- r }

func (i mailbox) wait(t *testing.T, within time.Duration) *fsm.Result {
	t.Helper()
	select {
	case r := <-i:
		return r
	case <-time.After(within):
		t.Fatalf("no answer within %v", within)
		return nil
	}
}

// client is a session at one of the servers, as package server holds one.
type client struct {
	w          *world
	host       *host
	id         session.ID
	secret     session.Secret
	generation uint64
	seq        uint64
}

var nonces uint64

func nextNonce() (n session.Nonce) {
	nonces++
	for i := range 8 {
		n[i] = byte(nonces >> (8 * i))
	}
	n[15] = 1
	return n
}

func (w *world) open(at string, timeout time.Duration) *client {
	w.t.Helper()
	h := w.hosts[at]
	in := newMailbox()
	h.node.Propose(&fsm.Command{Kind: fsm.CmdOpen, Open: &fsm.Open{
		Nonce: nextNonce(), Secret: session.Secret{1}, Timeout: timeout, Name: "test",
		Server: h.node.ServerID(), Boot: h.node.Boot(),
	}}, in)
	r := in.wait(w.t, 5*time.Second)
	if r.Err != nil || r.Session == nil {
		w.t.Fatalf("open at %s: %v %v", at, r.Status, r.Err)
	}
	return &client{w: w, host: h, id: r.Session.ID, secret: r.Session.Secret, generation: r.Session.Generation, seq: r.Session.Next - 1}
}

// attach moves the session to another server.
func (c *client) attach(at string) {
	c.w.t.Helper()
	h := c.w.hosts[at]
	in := newMailbox()
	h.node.Propose(&fsm.Command{Kind: fsm.CmdAttach, Attach: &fsm.Attach{
		Session: c.id, Secret: c.secret, Connection: c.generation + 1, Server: h.node.ServerID(), Boot: h.node.Boot(),
	}}, in)
	r := in.wait(c.w.t, 5*time.Second)
	if r.Err != nil {
		c.w.t.Fatalf("attach at %s: %v", at, r.Err)
	}
	c.host, c.generation = h, r.Session.Generation
}

func (c *client) line() fsm.LineRef { return fsm.LineRef{Session: c.id, Generation: c.generation} }

// send submits the next write of the session.
func (c *client) send(ops ...znode.Op) mailbox {
	c.seq++
	in := newMailbox()
	c.submit(c.seq, in, ops...)
	return in
}

func (c *client) submit(seq uint64, in mailbox, ops ...znode.Op) {
	cmd := fsm.AppendCommand(nil, &fsm.Command{
		Kind: fsm.CmdWrite, Line: c.line(), Seq: seq,
		Write: &fsm.Write{Multi: len(ops) != 1, Ops: ops},
	})
	c.host.node.Submit(c.line(), seq, cmd, in)
}

func createOp(path string) znode.Op {
	return znode.Op{Kind: znode.OpCreate, Path: path, Data: []byte("x"), ACL: openACL}
}

func ephemeralOp(path string) znode.Op {
	op := createOp(path)
	op.Node = znode.Ephemeral
	return op
}

var openACL = []znode.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}

// create makes a persistent znode through a server's own line.
func (w *world) create(at, path string) (*fsm.Result, error) {
	in := w.propose(at, createOp(path))
	select {
	case r := <-in:
		return r, r.Err
	case <-time.After(5 * time.Second):
		return nil, errors.New("no answer")
	}
}

func (w *world) propose(at string, ops ...znode.Op) mailbox {
	in := newMailbox()
	w.node(at).Propose(&fsm.Command{Kind: fsm.CmdWrite, Write: &fsm.Write{
		Multi: len(ops) != 1, Ops: ops, Trusted: true,
	}}, in)
	return in
}

func (w *world) exists(at, path string) (ok bool) {
	w.node(at).Machine().View(func(v *fsm.View) { _, ok = v.Tree.Exists(path) })
	return ok
}

// converged waits until all running servers have the same state.
func (w *world) converged() {
	w.t.Helper()
	w.eventually(10*time.Second, "all servers agree", func() bool {
		type state struct {
			digest, index uint64
		}
		var first *state
		for _, h := range w.hosts {
			if h.node == nil {
				continue
			}
			d, i, _ := h.node.Machine().Digest()
			if s := (state{d, i}); first == nil {
				first = &s
			} else if *first != s {
				return false
			}
		}
		return true
	})
}
