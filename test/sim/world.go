package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/internal/check"
	"github.com/coordd/coord/internal/memnet"
	"github.com/coordd/coord/server"
)

// What a network and a disk take when nothing is wrong, in paces: half a
// millisecond at the default pace.
const (
	linkPaces  = 1.0 / 400
	writePaces = 1.0 / 400
)

// world is one run.
type world struct {
	cfg     Config
	net     *memnet.Network
	hosts   []*host
	peers   []cluster.Peer
	riders  []*rider
	history *check.History
	journal *journal
	began   time.Time
	// clientLog hears only of what should not be.
	clientLog *slog.Logger
	healing   chan struct{} // closed when faults are to end
	rested    chan struct{} // closed when riders that have stopped are to end
	wiping    sync.Mutex    // only TryLock: one disk at a time

	mu       sync.Mutex // guards below
	failures []string
	happened map[Kind]int
}

// newWorld makes hosts and disks; nothing runs yet.
func newWorld(t *testing.T, cfg Config) *world {
	t.Helper()
	w := &world{
		cfg: cfg, net: memnet.New(), history: check.New(nil), journal: newJournal(), began: time.Now(),
		healing: make(chan struct{}), rested: make(chan struct{}), happened: map[Kind]int{},
	}
	w.clientLog = slog.New(slog.NewTextHandler(w.journal, &slog.HandlerOptions{Level: slog.LevelWarn}))
	w.net.DelayAll(cfg.paces(linkPaces))
	root := dataDir(t)
	for i := range cfg.Servers {
		name := fmt.Sprintf("n%d", i+1)
		w.peers = append(w.peers, cluster.Peer{Name: name, Address: name + ":7421"})
		w.hosts = append(w.hosts, &host{
			w: w, index: i, name: name, dir: filepath.Join(root, name), rnd: rand.New(rand.NewPCG(cfg.Seed, uint64(100+i))),
		})
	}
	return w
}

// dataDir is in memory where that is possible: no run is about real disks.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "coord-sim-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// serverConfig is what all servers have.
func (w *world) serverConfig(h *host) server.Config {
	log := slog.New(slog.NewTextHandler(w.journal, nil)).With("node", h.name)
	cfg := server.Config{
		Cluster: cluster.Config{
			Name: h.name, ClusterName: "sim", Peers: w.peers, Bootstrap: cluster.BootstrapAuto, Logger: log,
			Net: cluster.Net{
				Listen: func(_ context.Context, address string) (net.Listener, error) { return w.net.Listen(address) },
				Dial:   func(ctx context.Context, address string) (net.Conn, error) { return w.net.Dial(ctx, h.name, address) },
			},
		},
		GRPC:     h.name + ":7420",
		Insecure: true, // nobody else can reach it
		Logger:   log,
		Listener: func(_, address string) (net.Listener, error) { return w.net.Listen(address) },
	}
	w.cfg.configure(&cfg)
	return cfg
}

// target is what clients dial.
func (w *world) target() string {
	s := ""
	for i, h := range w.hosts {
		if i > 0 {
			s += ","
		}
		s += h.name + ":7420"
	}
	return s
}

// start runs all servers and waits until they serve.
func (w *world) start() bool {
	for _, h := range w.hosts {
		if err := h.start(); err != nil {
			w.wrong("%v", err)
			return false
		}
	}
	return w.until(300, "all servers have a vote and serve", w.whole)
}

// whole says what a server lacks that has no vote, or does not serve.
func (w *world) whole() error {
	for _, h := range w.hosts {
		p := h.running()
		if p == nil {
			return fmt.Errorf("%s does not run", h.name)
		}
		if st := p.server.Node().Status(); !st.Voter || !st.Ready {
			return fmt.Errorf("%s: voter %v, ready %v, leader %q, term %d, applied %d of %d, %s %v",
				h.name, st.Voter, st.Ready, st.Leader, st.Term, st.AppliedIndex, st.CommitIndex, st.Waiting, st.Checks)
		}
	}
	return nil
}

// agreed says that all servers have applied the same and come to the same.
func (w *world) agreed() error {
	type state struct{ digest, index uint64 }
	var first state
	for i, h := range w.hosts {
		p := h.running()
		if p == nil {
			return fmt.Errorf("%s does not run", h.name)
		}
		var s state
		s.digest, s.index, _ = p.server.Node().Machine().Digest()
		if i == 0 {
			first = s
		}
		if s != first {
			return fmt.Errorf("%s has %x at %d, %s has %x at %d", h.name, s.digest, s.index, w.hosts[0].name, first.digest, first.index)
		}
	}
	return nil
}

// until waits for a condition; if it does not come within so many paces that is
// noted as a failure.
func (w *world) until(paces float64, what string, ok func() error) bool {
	deadline := time.Now().Add(w.cfg.paces(paces))
	for {
		err := ok()
		if err == nil {
			return true
		}
		if time.Now().After(deadline) {
			w.wrong("not within %v paces: %s: %v", paces, what, err)
			return false
		}
		time.Sleep(w.cfg.paces(0.5))
	}
}

// leader is the host that leads, nil while none does.
func (w *world) leader() *host {
	var best *host
	var term uint64
	for _, h := range w.hosts {
		if p := h.running(); p != nil {
			if st := p.server.Node().Status(); st.Leading && st.Term > term {
				best, term = h, st.Term
			}
		}
	}
	return best
}

// server is the host that a step means: a follower if it is about the leader and
// there is none.
func (w *world) server(n int) *host {
	if n == Leader {
		if h := w.leader(); h != nil {
			return h
		}
		n = 0
	}
	return w.hosts[n%len(w.hosts)]
}

// wrong notes that a promise was broken.
func (w *world) wrong(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.note("WRONG: %s", text)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.failures) < maxFailures {
		w.failures = append(w.failures, text)
	}
}

// maxFailures bounds what one run says.
const maxFailures = 20

// note writes into the journal.
func (w *world) note(format string, args ...any) {
	fmt.Fprintf(w.journal, "== %.1fs "+format+"\n", append([]any{time.Since(w.began).Seconds()}, args...)...)
}

// journal keeps what servers log and what is done to them. When it is full the
// older half goes. It may be used from any goroutine.
type journal struct {
	mu  sync.Mutex
	old []byte
	buf []byte
}

const journalBytes = 8 << 20

func newJournal() *journal { return &journal{} }

// Write implements io.Writer.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.buf) > journalBytes/2 {
		j.old, j.buf = j.buf, nil
	}
	j.buf = append(j.buf, p...)
	return len(p), nil
}

// bytes is all that is kept.
func (j *journal) bytes() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append(append([]byte(nil), j.old...), j.buf...)
}
