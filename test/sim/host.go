package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/internal/stall"
	"github.com/coordd/coord/server"
)

// host is what a server runs on: a disk, a wall clock, a place in the network.
type host struct {
	w     *world
	index int
	name  string
	dir   string
	// watcher: it is an observer, or was one.
	watcher bool
	disk    stall.Disk

	mu      sync.Mutex    // guards below
	part    part          // what it is meant to be
	port    int           // of its peer port
	busy    bool          // one fault at a time ends or starts the server
	step    time.Duration // of the wall clock
	slow    time.Duration // what each write takes in addition
	applies time.Duration // what the apply of each entry takes
	deaf    bool          // reports are lost
	wild    bool          // what is forwarded is repeated and reordered
	rnd     *rand.Rand
	process *process // nil before the first start
	// peers and observers are what its configuration file lists.
	peers, observers []cluster.Peer
	raise            func() // lets the host onto the network again after a death
}

// death is how a write to the disk ends the process.
type death uint8

const (
	alive   death = iota
	unwrote       // the write is lost
	wrote         // the write is on the disk
)

// process is one life of a server.
type process struct {
	host   *host
	id     string // name~incarnation
	server *server.Server
	cancel context.CancelFunc
	done   chan struct{} // closed when nothing of it runs
	err    error         // of Run, when done

	mu   sync.Mutex // guards below
	dead bool       // killed: nothing that it does is seen
	doom death
	over time.Time     // when it ended; zero while it runs
	died chan struct{} // closed at its death
}

var errDead = errors.New("the server was killed")

// start begins a new life of the server. The one before must be over.
func (h *host) start() error {
	p := &process{host: h, done: make(chan struct{}), died: make(chan struct{})}
	s, err := server.New(h.config(p))
	if err != nil {
		return fmt.Errorf("%s does not start: %w", h.name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.id, p.server, p.cancel = s.Node().Status().ID, s, cancel
	go func() {
		defer close(p.done)
		p.err = s.Run(ctx)
		p.ended()
	}()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.process = p
	return nil
}

// config is a server's configuration, with its disk, clock and end in our hands.
func (h *host) config(p *process) server.Config {
	cfg := h.w.serverConfig(h)
	k := &cfg.Cluster
	k.DataDir = filepath.Join(h.dir, "data")
	k.BeforeWrite, k.Faults.Written = p.beforeWrite, p.written
	k.Faults.Forward, k.Faults.Report, k.Faults.Apply = h.forward, h.report, h.apply
	k.Clock.Wall = func() time.Time {
		h.mu.Lock()
		defer h.mu.Unlock()
		return time.Now().Add(h.step)
	}
	k.Fatal = p.fatal
	if h.w.cfg.Change != nil {
		h.w.cfg.Change(&cfg)
	}
	return cfg
}

// claim takes the right to end and start the server; false if another has it.
func (h *host) claim() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy {
		return false
	}
	h.busy = true
	return true
}

func (h *host) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy = false
}

// current is the newest process, nil before the first start.
func (h *host) current() *process {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.process
}

// running is the process if it lives, else nil.
func (h *host) running() *process {
	p := h.current()
	if p == nil || p.isDead() {
		return nil
	}
	select {
	case <-p.done:
		return nil
	default:
		return p
	}
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// ended notes when it did, once.
func (p *process) ended() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over.IsZero() {
		p.over = time.Now()
	}
}

// ranAfter says that it ran at that moment, or later.
func (p *process) ranAfter(t time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over.IsZero() || p.over.After(t)
}

// kill ends the process as kill -9 does: its connections break, it hands nothing
// over, and nothing more reaches its disk. It returns at once; done says when the
// rest of it is gone.
func (p *process) kill() {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return
	}
	p.dead = true
	p.mu.Unlock()
	p.ended()
	h := p.host
	up := h.w.net.Down(h.name)
	h.mu.Lock()
	h.raise = up
	h.mu.Unlock()
	close(p.died) // who waits for it may revive the host
	p.cancel()
}

// revive starts a server that was killed, or has ended, or never ran.
func (h *host) revive() error {
	h.mu.Lock()
	p, raise := h.process, h.raise
	h.raise = nil
	h.mu.Unlock()
	if p != nil {
		<-p.done
	}
	if raise != nil {
		raise()
	}
	return h.start()
}

// stop ends the server in order.
func (h *host) stop() error {
	p := h.running()
	if p == nil {
		return nil
	}
	p.cancel()
	<-p.done
	if p.isDead() {
		return nil // killed meanwhile
	}
	return p.err
}

// doomed makes the next write of the process its last.
func (p *process) doomed(d death) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doom = d
}

// beforeWrite takes the time that the disk takes. A process that is dead writes
// nothing. That covers what a crash may lose: log and votes are synced before
// anybody hears of them, so what is lost is the write under way, or nothing.
func (p *process) beforeWrite() error {
	h := p.host
	h.mu.Lock()
	pause := h.w.cfg.paces(writePaces) + h.slow
	h.mu.Unlock()
	h.disk.Wait(p.died) // the system lets go of what a dead process waits for
	time.Sleep(pause)
	p.mu.Lock()
	doom, dead := p.doom, p.dead
	p.mu.Unlock()
	if doom == unwrote {
		p.kill()
	}
	if dead || doom == unwrote {
		return errDead
	}
	return nil
}

// written is called when a write has come as far as the disk.
func (p *process) written() error {
	p.mu.Lock()
	doom, dead := p.doom, p.dead
	p.mu.Unlock()
	if doom == wrote {
		p.kill()
	}
	if dead || doom == wrote {
		return errDead
	}
	return nil
}

// fatal is where a process ends that does not trust its disk or its state.
func (p *process) fatal(err error) {
	h := p.host
	if !p.isDead() && !h.disk.Stalled() {
		h.w.wrong("%s has cut itself off: %v", h.name, err)
	}
	p.kill()
}

// set changes something of the host.
func (h *host) set(change func(*host)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(h)
}

var errLost = errors.New("the report was lost")

func (h *host) report(bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deaf && h.rnd.IntN(10) > 0 {
		return errLost
	}
	return nil
}

func (h *host) apply(uint64) {
	h.mu.Lock()
	pause := h.applies
	h.mu.Unlock()
	if pause > 0 {
		time.Sleep(pause)
	}
}

// forward repeats some commands, now or behind others, and changes their order.
func (h *host) forward(cmds [][]byte) [][]byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.wild {
		return cmds
	}
	out := make([][]byte, 0, 2*len(cmds))
	for _, cmd := range cmds {
		for range 1 + h.rnd.IntN(3) {
			out = append(out, cmd)
		}
	}
	if h.rnd.IntN(2) == 0 {
		h.rnd.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return out
}
