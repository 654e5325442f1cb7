package cluster

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

// Node is this server's part of the cluster: its Raft, its state machine and
// its peer port. Open makes it, Run runs it. All methods may be called from any
// goroutine, before and after Run too; then they answer that nothing is known.
type Node struct {
	cfg  Config
	log  *slog.Logger
	id   serverID
	boot uint64
	born time.Duration // on the node's clock

	changing chan struct{}      // holds one while the membership is being changed by this leader
	removed  chan *RemovedError // has room for one: this server was taken out of the cluster
	roles    roleClock

	stores    *stores
	machine   *fsm.Machine
	addresses *addresses
	listener  net.Listener
	net       *peerNet
	transport atomic.Pointer[transport] // nil until Run has started Raft
	notifier  *commitNotifier
	peers     *peers
	dialing   *interrupter
	raft      atomic.Pointer[raft.Raft] // nil until Run has started it
	changed   *beacon                   // role, leader, membership or reign may have changed

	fwd      *forwarder
	intake   intake
	rounds   *rounds
	reads    *reads
	signs    *signs
	trims    *trims
	reporter *reporter
	losses   *losses
	contacts contacts
	form     *formation
	disk     *diskRoom
	reign    atomic.Pointer[reign]
	alarm    atomic.Pointer[string]   // of the leader, why changes are refused; nil or empty: they are not
	live     atomic.Pointer[liveness] // of the reign, from the moment it has seen the table
	bootSeen nudge                    // a Boot was applied

	lastEntry atomic.Pointer[entryMark]
	restores  atomic.Int32 // snapshots being installed

	restoreFailed atomic.Pointer[error] // the first one
	snapshots     *snapshots
	counters      counters
	started       atomic.Bool
	stopping      atomic.Bool
	formed        atomic.Bool    // Formed was nil once
	wg            sync.WaitGroup // goroutines of streams; Run waits for them
	raftOver      chan struct{}  // closed when Raft has ended
	fatalOnce     sync.Once
	closeOnce     sync.Once
	closeError    error
}

// entryMark names an entry as the state machine saw it.
type entryMark struct{ index, term uint64 }

// Open takes the data directory and the peer port, and makes the state machine.
// Nothing runs yet. Close or Run must follow. It returns ErrRemoved for a
// directory whose server was taken out of its cluster.
func Open(cfg Config) (_ *Node, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if err := readRemoved(cfg.DataDir); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, log: cfg.Logger.With("node", cfg.Name), changed: &beacon{}, bootSeen: newNudge()}
	n.boot, n.born = newBoot(), n.now()
	n.changing, n.removed, n.raftOver = make(chan struct{}, 1), make(chan *RemovedError, 1), make(chan struct{})
	n.disk = newDiskRoom(cfg.DataDir, max(cfg.DiskReserve, 0), logSegmentBytes(cfg.SnapshotLogSize, cfg.DiskReserve))
	if cfg.Faults.FreeBytes != nil {
		n.disk.free = cfg.Faults.FreeBytes
	}
	raftLog := newRaftLogger(n.log)
	n.stores, err = openStores(storeConfig{
		dir: cfg.DataDir, name: cfg.Name, kind: logStoreKind(cfg.LogStore), writeDeadline: cfg.WriteDeadline,
		fail: n.fatal, beforeWrite: cfg.BeforeWrite, written: cfg.Faults.Written,
		onSync: n.synced, log: raftLog,
		locked: n.beginDisk, segment: int(n.disk.step), prepare: n.disk.prepare,
	})
	if err != nil {
		return nil, n.disk.explain(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	n.stores.snaps.spares = n.disk.spares
	n.id = n.stores.server()
	n.log = n.log.With("id", string(n.id))
	n.machine = fsm.New(fsm.Options{Hook: (*nodeHook)(n), Logger: n.log, Fatal: n.fatal, Distort: cfg.Distort})
	if n.listener, err = cfg.Net.Listen(context.Background(), cfg.Listen); err != nil {
		return nil, fmt.Errorf("peer port %s: %w", cfg.Listen, err)
	}
	n.makeParts()
	return n, nil
}

// beginDisk looks at the room on the disk before anything is opened.
func (n *Node) beginDisk() error {
	warning, err := n.disk.begin()
	if warning != "" {
		n.log.Error("this server will never take writes", "event", "disk_too_small", "detail", warning)
	}
	return err
}

// newBoot draws the number of one start of a server, never 0.
func newBoot() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])>>1 | 1
}

func (n *Node) makeParts() {
	n.addresses = newAddresses(n.cfg.servers(), filepath.Join(n.cfg.DataDir, addressFile))
	if err := n.addresses.load(); err != nil {
		n.log.Warn("what servers said of their addresses is not known any more; they will say it again", "err", err)
	}
	n.formed.Store(wasFormed(n.cfg.DataDir, n.stores.cluster()))
	n.fwd = newForwarder(n.id, n.boot, n.now)
	n.losses = newLosses(n)
	n.fwd.malformed = n.malformed
	n.rounds = newRounds(n.id, n, n.termAsker, roundTimeout*n.cfg.Election, n.changed)
	n.reads = newReads(n)
	n.signs = newSigns(n.now, n.cfg.reportInterval())
	n.trims = newTrims()
	n.reporter = newReporter(n)
	n.form = &formation{node: n}
	n.snapshots = newSnapshots(n)
	n.dialing = newInterrupter()
	n.peers = newPeers(func(ctx context.Context, target string) (net.Conn, error) { return n.net.dialRPC(ctx, target) })
}

func (n *Node) peerNetConfig() peerNetConfig {
	c := peerNetConfig{
		self: n.id, cluster: n.stores.cluster, listener: n.listener,
		dial: n.dialing.around(n.cfg.Net.Dial), resolve: n.addresses.resolve, dialed: n.dialed, log: n.log,
		ended: func(serverID) { n.losses.connectionsEnded() },
	}
	if n.cfg.TLS.Server != nil {
		c.serverTLS = func() *tls.Config { return n.cfg.TLS.Server }
		c.clientTLS = n.cfg.TLS.Client
		c.admit = admitServers
	}
	return c
}

// interrupter makes dials end when the node does: a peer that does not answer
// must not hold up the stop.
type interrupter struct {
	once    sync.Once
	stopped chan struct{}
}

func newInterrupter() *interrupter { return &interrupter{stopped: make(chan struct{})} }

func (i *interrupter) stop() { i.once.Do(func() { close(i.stopped) }) }

// around returns dial with the additional end.
func (i *interrupter) around(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		done := make(chan struct{})
		defer close(done)
		go func() {
			select {
			case <-i.stopped:
				cancel()
			case <-done:
			}
		}()
		return dial(ctx, address)
	}
}

// now is the node's monotonic clock.
func (n *Node) now() time.Duration { return n.cfg.Clock.Monotonic() }

// WallClock is what this server takes for the time of day.
func (n *Node) WallClock() time.Time { return n.cfg.Clock.Wall() }

// clockMS is the wall clock in ms since 1970.
func (n *Node) clockMS() int64 { return n.cfg.Clock.Wall().UnixMilli() }

func (n *Node) commitIndex() uint64 {
	if r := n.raft.Load(); r != nil {
		return r.CommitIndex()
	}
	return 0
}

// Machine is the replicated state.
func (n *Node) Machine() *fsm.Machine { return n.machine }

// ServerID is name~incarnation: who this server is in Open and Attach.
func (n *Node) ServerID() string { return string(n.id) }

// Boot is the number of this start of the server, for Open and Attach.
func (n *Node) Boot() uint64 { return n.boot }

// ClusterID is empty until the server belongs to a cluster.
func (n *Node) ClusterID() string { return n.stores.cluster() }

// PeerAddr is where the peer port really listens.
func (n *Node) PeerAddr() net.Addr { return n.listener.Addr() }

// Submit takes command number seq of a session's line and offers it to the
// leaders to come until it is answered. cmd belongs to the node from then on.
// Numbers must be submitted in order and without gaps; one that is pending may
// be submitted again as something else (a skip): whichever is applied answers
// both. Submit never blocks and takes everything: the caller bounds what is
// unanswered, and asks MayWrite before it reads more from clients.
//
// A command that the replicas could not read is a fault of this server. It would
// stop every one of them, so a skip with fsm.ErrInternal takes its number.
func (n *Node) Submit(line fsm.LineRef, seq uint64, cmd []byte, w Waiter) {
	n.counters.proposals.Add(1)
	n.fwd.submit(line, seq, cmd, w)
}

// malformed counts a command of this server that is not offered, and says so.
func (n *Node) malformed(err error) {
	n.counters.malformed.Add(1)
	n.log.Error("a command of this server was badly made and is not proposed", "event", "malformed_command", "err", err)
}

// DropLine forgets what is pending on the line of a session's connection: its
// waiters are not called any more. What was sent may still be applied.
func (n *Node) DropLine(s session.ID, generation uint64) { n.fwd.drop(s, generation) }

// Propose sends a command that belongs to no session on this server's own
// line; Line, Seq and Ack of c are filled in. Like Submit it does not block.
func (n *Node) Propose(c *fsm.Command, w Waiter) {
	n.counters.proposals.Add(1)
	n.fwd.propose(c, w)
}

// Heard is a sign of life of a session that is connected here, at its
// connection of that generation. It is cheap and may be called for every
// request.
func (n *Node) Heard(s session.ID, generation uint64) { n.signs.heard(s, generation, nil) }

// Beat is a sign of life that is to be answered: done is called once, from any
// goroutine, with nil when the leader has counted it, or with the reason why it
// will not be (session.ErrExpired, ErrClosed, ErrMoved, ErrUnknown,
// ErrSuperseded, ErrStopped). It must not block. Until there is a leader it is
// not called.
func (n *Node) Beat(s session.ID, generation uint64, done func(error)) {
	n.signs.heard(s, generation, done)
}

// Uncounted is the age of the oldest sign of life of a session that the leader
// has not counted yet, 0 if there is none.
func (n *Node) Uncounted(s session.ID, generation uint64) time.Duration {
	return n.signs.uncounted(s, generation)
}

// OldestUncounted is the largest Uncounted of all sessions that are connected
// here. It looks only at what the leader has not counted yet.
func (n *Node) OldestUncounted() time.Duration { return n.signs.oldestUncounted() }

// Acknowledge notes that the client of an idle session has the answers up to
// seq, so that they can be forgotten. Writes carry that themselves.
func (n *Node) Acknowledge(s session.ID, seq uint64) { n.trims.note(s, seq) }

// SilentFor returns how long the leader has not heard of a session; false if
// this server does not lead.
func (n *Node) SilentFor(s session.ID) (time.Duration, bool) {
	if l := n.live.Load(); l != nil {
		return l.silentFor(s)
	}
	return 0, false
}

// StaleAge is the time since the state here was known to hold everything that
// was committed.
func (n *Node) StaleAge() time.Duration { return n.reporter.staleAge() }

// Snapshot writes a snapshot now and returns the index it reaches.
func (n *Node) Snapshot() (index uint64, err error) { return n.snapshots.take() }

func (n *Node) restoring() bool { return n.restores.Load() > 0 }

func (n *Node) featureLevel() uint32 { return fsm.FeatureLevel }
