//go:build planted

package planted

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/internal/check"
	"github.com/coordd/coord/internal/localcluster"
	"github.com/coordd/coord/internal/memnet"
	"github.com/coordd/coord/server"
)

// world is a cluster of three in fake time, and the clients whose history is
// recorded. Its schedules are written out: each is the one that a bug needs.
type world struct {
	t     *testing.T
	h     *check.History
	net   *memnet.Network
	local *localcluster.Cluster
	hosts []*host

	timeout time.Duration // of the sessions that clients open
	clients []*check.Client
	stuck   string // what did not come; with a bug that may be
}

const servers = 3

// latency is what everything takes from host to host.
const latency = 10 * time.Millisecond

// patience bounds what the schedules wait for, in fake time.
const patience = 30 * time.Second

// host is what a server runs on.
type host struct {
	w    *world
	name string

	mu     sync.Mutex // guards below
	dead   bool
	up     func() // onto the network again
	before func() // called before each write, which it may hold up; nil: not
}

var errDead = errors.New("the server was killed")

// beforeWrite is the disk of the host.
func (h *host) beforeWrite() error {
	h.mu.Lock()
	before := h.before
	h.mu.Unlock()
	if before != nil {
		before()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return errDead
	}
	return nil
}

// newWorld starts the cluster. Call it inside of a bubble.
func newWorld(t *testing.T, h *check.History) *world {
	t.Helper()
	w := &world{t: t, h: h, net: memnet.New(), timeout: 4 * time.Second}
	for i := range servers {
		w.hosts = append(w.hosts, &host{w: w, name: fmt.Sprintf("n%d", i+1)})
	}
	w.net.DelayAll(latency)
	dir, err := os.MkdirTemp("/dev/shm", "planted-")
	if err != nil {
		dir = t.TempDir()
	} else {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w.local, err = localcluster.Start(ctx, localcluster.Options{Servers: servers, Dir: dir, Net: w.net, Change: w.configure})
	if err != nil {
		t.Fatal(err)
	}
	w.await("all servers to vote", func() bool {
		for i := range servers {
			if st := w.node(i).Status(); !st.Voter || !st.Ready {
				return false
			}
		}
		return true
	})
	return w
}

func (w *world) configure(cfg *server.Config) {
	cfg.Session.Min, cfg.Session.Default, cfg.Session.Max = 2*time.Second, 4*time.Second, time.Minute
	k := &cfg.Cluster
	h := w.hosts[slices.IndexFunc(w.hosts, func(h *host) bool { return h.name == k.Name })]
	k.LogStore, k.DiskReserve, k.StableBeforeVote = "boltdb", -1, time.Millisecond
	k.BeforeWrite = h.beforeWrite
	k.Fatal = func(err error) {
		w.h.Digest(h.name, "none, it has stopped: "+err.Error())
		w.kill(h)
	}
	cfg.ZooKeeper.Address = h.name + ":2181"
}

// node is the cluster's part of a server that runs.
func (w *world) node(i int) *cluster.Node { return w.local.Server(i).Node() }

func (w *world) alive(i int) bool {
	h := w.hosts[i]
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.dead && w.local.Server(i) != nil
}

// await polls for something that must come.
func (w *world) await(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.stuck = what
			return
		}
	}
}

// elected is whether a server has won its election, whatever it has done since.
func (w *world) elected(i int) bool {
	return w.alive(i) && w.node(i).Status().Leader == w.hosts[i].name
}

// leader is the server that leads the newest term, -1 if there is none.
func (w *world) leader() int {
	best, term := -1, uint64(0)
	for i := range servers {
		if !w.alive(i) {
			continue
		}
		if st := w.node(i).Status(); st.Leading && st.Term > term {
			best, term = i, st.Term
		}
	}
	return best
}

// awaitLeader waits for a leader other than that one.
func (w *world) awaitLeader(not int) int {
	w.t.Helper()
	lead := -1
	w.await("a leader", func() bool { lead = w.leader(); return lead >= 0 && lead != not })
	return lead
}

// others are the servers but one.
func others(not int) []int {
	return slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == not })
}

// kill ends a server as kill -9 does.
func (w *world) kill(h *host) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return
	}
	h.dead, h.up = true, w.net.Down(h.name)
}

// launch starts servers that were killed, with the data they have.
func (w *world) launch(which ...int) {
	w.t.Helper()
	for _, i := range which {
		h := w.hosts[i]
		w.kill(h)
		_ = w.local.StopServer(i) // it does not end in order
		h.mu.Lock()
		h.dead = false
		h.up()
		h.mu.Unlock()
		if err := w.local.StartServer(i); err != nil {
			w.t.Fatal(err)
		}
	}
}

// ready waits until all servers serve clients.
func (w *world) ready() {
	w.t.Helper()
	w.await("all servers to be ready", func() bool {
		for i := range servers {
			if !w.alive(i) || !w.node(i).Status().Ready {
				return false
			}
		}
		return true
	})
}

// isolate cuts a server off from the others; its clients stay.
func (w *world) isolate(i int) (heal func()) {
	var heals []func()
	for _, j := range others(i) {
		heals = append(heals, w.net.Cut(w.hosts[i].name, w.hosts[j].name))
	}
	return func() {
		for _, f := range heals {
			f()
		}
	}
}

// client opens a session at some servers, or at all if none is named, on a host of
// its own, whose name is the client's.
func (w *world) client(name string, at ...int) *check.Client {
	w.t.Helper()
	target := ""
	for i, endpoint := range w.local.Endpoints() {
		if len(at) == 0 || slices.Contains(at, i) {
			target += "," + endpoint
		}
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	c, err := client.Dial(ctx, target[1:], w.h.Tap(), client.WithSessionTimeout(w.timeout), client.WithGRPCOptions(
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return w.net.Dial(ctx, name, address)
		})))
	if err != nil {
		w.t.Fatalf("client %s: %v", name, err)
	}
	rec := w.h.Client(name, c)
	w.clients = append(w.clients, rec)
	return rec
}

// soon is a context for a call that need not come through.
func (w *world) soon(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	w.t.Cleanup(cancel)
	return ctx
}

// end heals nothing: the schedule has. It gives everything time to come to rest,
// looks at the state and at all servers, and ends clients and servers.
func (w *world) end() {
	w.t.Helper()
	w.ready()
	time.Sleep(3 * time.Second)
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	eye := w.client("eye")
	if z, err := eye.Sync(ctx); err == nil {
		time.Sleep(2 * time.Second)
		w.h.Settled(z)
	}
	if err := eye.Final(ctx, "/"); err != nil {
		w.stuck = "the final look: " + err.Error()
	}
	w.digests()
	for _, c := range w.clients {
		_ = c.Close() // the bug may have taken its session away
	}
	_ = w.local.Close() // what was killed does not end in order
	w.h.Wait()
}

// digests compares the servers when they have applied the same.
func (w *world) digests() {
	w.t.Helper()
	var digests [servers]uint64
	w.await("all servers to apply the same", func() bool {
		var indexes [servers]uint64
		for i := range servers {
			if w.alive(i) {
				digests[i], indexes[i], _ = w.node(i).Machine().Digest()
			}
		}
		return indexes[0] == indexes[1] && indexes[1] == indexes[2]
	})
	for i := range servers {
		if w.alive(i) {
			w.h.Digest(w.hosts[i].name, fmt.Sprintf("%016x", digests[i]))
		}
	}
}
