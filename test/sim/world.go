package sim

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	riders  []*rider
	history *check.History
	journal *journal
	began   time.Time
	again   string // the command that repeats the run
	// clientLog hears only of what should not be.
	clientLog *slog.Logger
	healing   chan struct{} // closed when faults are to end
	rested    chan struct{} // closed when riders that have stopped are to end
	changing  sync.Mutex    // only TryLock: one change of the members, or lost disk, at a time
	calm      sync.Mutex    // only TryLock: one fault at a time, in a steady run

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
	for i := range cfg.hosts() {
		h := &host{w: w, index: i, name: fmt.Sprintf("n%d", i+1), port: 7421, rnd: rand.New(rand.NewPCG(cfg.Seed, uint64(100+i)))}
		switch first := cfg.Servers + cfg.Spares; {
		case i < cfg.Servers:
			h.part = voting
		case i >= first:
			h.name, h.part, h.watcher = fmt.Sprintf("o%d", i-first+1), observing, true
		}
		h.dir = filepath.Join(root, h.name)
		w.hosts = append(w.hosts, h)
	}
	for _, h := range w.present() {
		w.enrol(h, h.part)
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
	h.mu.Lock()
	defer h.mu.Unlock()
	cfg := server.Config{
		Cluster: cluster.Config{
			Name: h.name, ClusterName: "sim", Peers: h.peers, Observers: h.observers, Bootstrap: cluster.BootstrapAuto, Logger: log,
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

// target is what clients dial: also who is not there yet.
func (w *world) target() string {
	var all []string
	for _, h := range w.hosts {
		all = append(all, h.name+":7420")
	}
	return strings.Join(all, ",")
}

// onlyObservers says that a client knows no servers but the observers.
func (c Config) onlyObservers(client int) bool { return c.Observers > 0 && client%3 == 1 }

// targetOf is what one of the clients dials; "" for all.
func (w *world) targetOf(client int) string {
	if !w.cfg.onlyObservers(client) {
		return ""
	}
	all := strings.Split(w.target(), ",")
	return strings.Join(all[w.cfg.Servers+w.cfg.Spares:], ",")
}

// start runs all servers and waits until they serve.
func (w *world) start() bool {
	for _, h := range w.present() {
		if err := h.start(); err != nil {
			w.wrong("%v", err)
			return false
		}
	}
	return w.until(300, "all servers have a vote and serve", w.whole)
}

// whole says what a server lacks that is not what it is meant to be, or does not
// serve, and who is a member that should be none.
func (w *world) whole() error {
	present := w.present()
	for _, h := range present {
		p := h.running()
		if p == nil {
			return h.whyGone()
		}
		if st := p.server.Node().Status(); st.Voter != (h.is() == voting) || !st.Ready || st.Servers != len(present) {
			return fmt.Errorf("%s: voter %v, ready %v, leader %q, term %d, applied %d of %d, %d of %d members, %s %v", h.name,
				st.Voter, st.Ready, st.Leader, st.Term, st.AppliedIndex, st.CommitIndex, st.Servers, len(present), st.Waiting, st.Checks)
		}
	}
	return nil
}

// whyGone says of a host without a process how that has ended.
func (h *host) whyGone() error {
	p := h.current()
	if p == nil {
		return fmt.Errorf("%s was not started", h.name)
	}
	select {
	case <-p.done:
		return fmt.Errorf("%s does not run: %w", h.name, cmp.Or(p.err, errDead))
	default:
		return fmt.Errorf("%s was killed", h.name)
	}
}

// agreed says that all servers have applied the same and come to the same.
func (w *world) agreed() error {
	type state struct{ digest, index uint64 }
	var first state
	present := w.present()
	for i, h := range present {
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
			return fmt.Errorf("%s has %x at %d, %s has %x at %d", h.name, s.digest, s.index, present[0].name, first.digest, first.index)
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

// server is the host that a step means, of those that are there: a follower if it is
// about the leader and there is none. In a steady run it is never the leader.
func (w *world) server(n int) *host {
	present, leader := w.present(), w.leader()
	switch {
	case n == Leader && leader != nil && !w.cfg.Steady:
		return leader
	case n == Leader:
		n = 0
	}
	h := present[n%len(present)]
	if w.cfg.Steady && h == leader {
		h = present[(n+1)%len(present)]
	}
	return h
}

// other is one of the hosts that are there besides a; a if there is no other.
func (w *world) other(a *host, n int) *host {
	others := slices.DeleteFunc(w.present(), func(h *host) bool { return h == a })
	if n == Leader {
		n = 0
	}
	if len(others) == 0 {
		return a
	}
	return others[n%len(others)]
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
