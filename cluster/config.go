package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"github.com/coordd/coord/fsm"
)

// Bootstrap says how a cluster comes into being.
type Bootstrap string

const (
	// BootstrapManual waits for an operator (Node.Form). It is the default.
	BootstrapManual Bootstrap = "manual"
	// BootstrapAuto forms the cluster as soon as every listed peer answers, has
	// no data and has the same list.
	BootstrapAuto Bootstrap = "auto"
)

// Peer is a server as the operator lists it: its name and the host and port of
// its peer port.
type Peer struct{ Name, Address string }

func (p Peer) String() string { return p.Name + "=" + p.Address }

// Config says who a server is and how its Raft behaves. A zero field has the
// default named beside it.
type Config struct {
	// Name is this server's entry in Peers or Observers. No default.
	Name string
	// ClusterName is what the operator calls the cluster; servers of another
	// cluster name are refused. "coord".
	ClusterName string
	// Peers lists all servers that may vote, the same on each. A single one is
	// allowed.
	Peers []Peer
	// Observers lists servers that never vote, and count in no quorum: they serve
	// reads, watches and sessions, and forward writes. None by default.
	Observers []Peer
	// Bootstrap is BootstrapManual by default.
	Bootstrap Bootstrap
	// DataDir holds everything that must survive. No default.
	DataDir string
	// Listen is where the peer port listens; this server's address in Peers.
	Listen string

	// Heartbeat (200 ms), Election (200 ms) and Lease (as Heartbeat) are Raft's.
	// After a leader falls silent writes stand for about 2.2 times the first two. On
	// a WAN use 500 ms and more.
	Heartbeat, Election, Lease time.Duration
	// WriteDeadline is how long one write to the disk may take before the
	// server cuts itself off and ends; 5 s. It must be longer than any fsync
	// that should be survived.
	WriteDeadline time.Duration
	// SnapshotLogSize is how many bytes of log cause a snapshot; 64 MiB.
	SnapshotLogSize int64
	// LogStore is "wal" (default) or "boltdb".
	LogStore string
	// StableBeforeVote is how long a joining server must have kept up before it
	// gets a vote that raises the quorum; 10 s.
	StableBeforeVote time.Duration
	// RemoveDeadAfter is how long a voter may be silent before it is taken out of
	// the cluster, if that lowers the quorum; 0: never.
	RemoveDeadAfter time.Duration
	// SessionMin is the smallest session timeout of the cluster; 2 s. Reports to
	// the leader are sent every 1/20 of it.
	SessionMin time.Duration
	// MinEpoch is the least first epoch of a new cluster, for one that replaces
	// a cluster whose tokens must not come again; 0.
	MinEpoch uint32
	// DiskReserve is kept in a preallocated file, and as much again must be free
	// beside it for writes to be taken; 64 MiB, at least 8 MiB. Negative: no
	// reserve, and writes are taken until one fails, which ends the server.
	DiskReserve int64

	// TLS secures the peer port. The zero value is plain text.
	TLS PeerTLS
	// Logger is slog.Default() if nil.
	Logger *slog.Logger
	// Hook hears what is applied; events are queued there before any waiter of
	// the same transaction is told. nil: nobody.
	Hook fsm.Hook
	// Info says what this server shows of itself to the others; nil: nothing. It
	// is called often and must not block.
	Info func() Info
	// Fatal ends the process after the server has cut itself off, because its
	// disk or its state cannot be trusted. By default it logs and exits.
	Fatal func(error)
	// Timings hear of durations, for metrics.
	Timings Timings

	// Net replaces the network, Clock the time, for tests.
	Net   Net
	Clock Clock
	// BeforeWrite is called before each write to the log and to the votes, under
	// their watch, for tests: it may block, as a disk does that stalls, and its
	// error is that of a disk that has failed. nil is no call.
	BeforeWrite func() error
	// Distort may change the state behind each log entry, for tests of what finds a
	// replica that differs. nil is no call.
	Distort func(index uint64, v *fsm.View)
	// Faults disturb the server, for tests.
	Faults Faults
	// transport stands between Raft and the network, for tests of this package.
	transport transportFaults
}

// Faults disturb a server where its network, clock and disk cannot, for tests.
// The zero value disturbs nothing. All are called on many goroutines.
type Faults struct {
	// Forward may repeat, drop and reorder the commands of one message that is
	// offered to a leader. It may change the slice, not the commands.
	Forward func(cmds [][]byte) [][]byte
	// Report may lose a report before or after it was sent.
	Report func(sent bool) error
	// Apply is called before a log entry is applied, and may block.
	Apply func(index uint64)
	// Written is called after each write to the log and to the votes, when it is
	// on the disk and nobody has heard of it. Its error is that of the write.
	Written func() error
	// FreeBytes takes the place of the room on the disk.
	FreeBytes func(dir string) (int64, error)
}

// PeerTLS has the two sides of mutual TLS between servers. Both or none is set.
type PeerTLS struct {
	// Server must require and verify client certificates.
	Server *tls.Config
	// Client returns the configuration for connecting to the host of a peer.
	Client func(host string) *tls.Config
}

// Timings hear of durations; a nil one is not called. They must not block.
type Timings struct {
	Fsync  func(time.Duration) // one append to the log
	Commit func(time.Duration) // of a batch, at the leader, from seal to applied
	Apply  func(time.Duration) // of an entry
	// Snapshot is one snapshot that was written, from the wish until it is durable.
	Snapshot func(time.Duration)
}

// Net is how the peer port reaches others. Zero fields use TCP.
type Net struct {
	Listen func(ctx context.Context, address string) (net.Listener, error)
	Dial   func(ctx context.Context, address string) (net.Conn, error)
}

// Clock is where time comes from. Timers are always those of package time; a
// clock only says how late it is. Zero fields use package time.
type Clock struct {
	// Wall is the wall clock.
	Wall func() time.Time
	// Monotonic is the time since some fixed moment. It must not go back.
	Monotonic func() time.Duration
}

// Info is what a server shows of itself to the others.
type Info struct {
	GRPCAddress, HTTPAddress, ZooKeeperAddress string

	Version  string
	Ready    bool
	Detail   string // why not ready
	Sessions int64  // attached here
}

const (
	defaultWriteDeadline    = 5 * time.Second
	defaultSnapshotLogSize  = 64 << 20
	defaultStableBeforeVote = 10 * time.Second
	defaultSessionMin       = 2 * time.Second
	defaultDiskReserve      = 64 << 20
	maxPeers                = 64
)

// withDefaults fills the zero fields in.
func (c Config) withDefaults() Config {
	c.ClusterName = cmp.Or(c.ClusterName, "coord")
	c.Bootstrap = cmp.Or(c.Bootstrap, BootstrapManual)
	times := raftTimes{c.Heartbeat, c.Election, c.Lease}.withDefaults()
	c.Heartbeat, c.Election, c.Lease = times.heartbeat, times.election, times.lease
	c.WriteDeadline = cmp.Or(c.WriteDeadline, defaultWriteDeadline)
	c.SnapshotLogSize = cmp.Or(c.SnapshotLogSize, defaultSnapshotLogSize)
	c.LogStore = cmp.Or(c.LogStore, string(logStoreWAL))
	c.StableBeforeVote = cmp.Or(c.StableBeforeVote, defaultStableBeforeVote)
	c.SessionMin = cmp.Or(c.SessionMin, defaultSessionMin)
	c.DiskReserve = cmp.Or(c.DiskReserve, defaultDiskReserve)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Peers = slices.Clone(c.Peers)
	slices.SortFunc(c.Peers, func(a, b Peer) int { return cmp.Compare(a.Name, b.Name) })
	c.Observers = slices.Clone(c.Observers)
	if p, ok := c.Self(); ok {
		c.Listen = cmp.Or(c.Listen, p.Address)
	}
	return c.withDefaultHooks()
}

func (c Config) withDefaultHooks() Config {
	if c.Net.Listen == nil {
		c.Net.Listen = listenPeerTCP
	}
	if c.Net.Dial == nil {
		c.Net.Dial = dialPeerTCP
	}
	if c.Clock.Wall == nil {
		c.Clock.Wall = time.Now
	}
	if c.Clock.Monotonic == nil {
		start := time.Now()
		c.Clock.Monotonic = func() time.Duration { return time.Since(start) }
	}
	if c.Info == nil {
		c.Info = func() Info { return Info{} }
	}
	if c.Fatal == nil {
		log := c.Logger
		c.Fatal = func(err error) {
			log.Error("this server cannot go on", "err", err)
			os.Exit(1)
		}
	}
	return c
}

// Validate names the first field that cannot be used. Zero fields are valid
// where they have a default.
func (c Config) Validate() error {
	c = c.withDefaults()
	checks := []func() error{c.validatePeers, c.validateTimes, c.validateSizes, c.validateTLS}
	for _, check := range checks {
		if err := check(); err != nil {
			return fmt.Errorf("cluster config: %w", err)
		}
	}
	return nil
}

func (c Config) validatePeers() error {
	if err := validateName(c.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	if len(c.ClusterName) > maxNameBytes {
		return fmt.Errorf("cluster name has %d bytes (want at most %d)", len(c.ClusterName), maxNameBytes)
	}
	if len(c.Peers) == 0 || len(c.Peers) > maxPeers {
		return fmt.Errorf("peers: %d listed (want 1 to %d)", len(c.Peers), maxPeers)
	}
	if len(c.Observers) > maxPeers {
		return fmt.Errorf("observers: %d listed (want at most %d)", len(c.Observers), maxPeers)
	}
	names, addresses := map[string]bool{}, map[string]bool{}
	for _, p := range c.servers() {
		list := "peers"
		if c.isObserver(p.Name) {
			list = "observers"
		}
		if err := validatePeer(p); err != nil {
			return fmt.Errorf("%s: %w", list, err)
		}
		if names[p.Name] || addresses[p.Address] {
			return fmt.Errorf("%s: %s has the name or the address of another one", list, p)
		}
		names[p.Name], addresses[p.Address] = true, true
	}
	if !names[c.Name] {
		return fmt.Errorf("peers: %s itself is not listed, nor is it in observers", c.Name)
	}
	if c.Bootstrap != BootstrapManual && c.Bootstrap != BootstrapAuto {
		return fmt.Errorf("bootstrap %q (want manual or auto)", c.Bootstrap)
	}
	return nil
}

func validatePeer(p Peer) error {
	if err := validateName(p.Name); err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(p.Address); err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	return nil
}

func (c Config) validateTimes() error {
	for _, d := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{
		{"raft heartbeat", c.Heartbeat, 10 * time.Millisecond},
		{"raft election", c.Election, c.Heartbeat},
		{"raft lease", c.Lease, 5 * time.Millisecond},
		{"raft write deadline", c.WriteDeadline, c.Election},
		{"stable before vote", c.StableBeforeVote, 0},
		{"smallest session timeout", c.SessionMin, 100 * time.Millisecond},
	} {
		if d.value < d.least {
			return fmt.Errorf("%s %v is too short (want at least %v)", d.name, d.value, d.least)
		}
	}
	if c.Lease > c.Heartbeat {
		return fmt.Errorf("raft lease %v is longer than the heartbeat %v", c.Lease, c.Heartbeat)
	}
	return nil
}

func (c Config) validateSizes() error {
	if c.DataDir == "" {
		return errors.New("data directory is not set")
	}
	if c.LogStore != string(logStoreWAL) && c.LogStore != string(logStoreBoltDB) {
		return fmt.Errorf("raft log store %q (want wal or boltdb)", c.LogStore)
	}
	if c.DiskReserve > 0 && c.DiskReserve < minDiskReserve {
		return fmt.Errorf("raft disk reserve %d is too small (want at least %d MiB, or none)", c.DiskReserve, minDiskReserve>>20)
	}
	if c.SnapshotLogSize < 1<<20 {
		return fmt.Errorf("raft snapshot log size %d is too small (want at least 1 MiB)", c.SnapshotLogSize)
	}
	return nil
}

func (c Config) validateTLS() error {
	if (c.TLS.Server == nil) != (c.TLS.Client == nil) {
		return errors.New("TLS between servers needs both the server and the client side")
	}
	return nil
}

// peer returns the entry of a name.
func (c Config) peer(name string) (Peer, bool) {
	i := slices.IndexFunc(c.Peers, func(p Peer) bool { return p.Name == name })
	if i < 0 {
		return Peer{}, false
	}
	return c.Peers[i], true
}

// peerList is Peers in the form in which servers compare it.
func (c Config) peerList() []string {
	out := make([]string, len(c.Peers))
	for i, p := range c.Peers {
		out[i] = p.String()
	}
	return out
}

// reportInterval is how often a server reports to the leader.
func (c Config) reportInterval() time.Duration {
	return min(max(c.SessionMin/20, 20*time.Millisecond), c.slowly(250*time.Millisecond))
}

// slowly is a period of looking after something, as long as it is with the
// default times. A cluster with longer ones, as over a WAN, looks less often in
// proportion: nothing that is looked for comes sooner than Raft notices it.
func (c Config) slowly(period time.Duration) time.Duration {
	return time.Duration(float64(period) * max(1, float64(c.Heartbeat)/float64(defaultHeartbeat)))
}

// firstEpoch is the least epoch of a cluster formed at the time now: tokens
// rise over a total loss as long as there was on average less than one election
// a second since 2024.
func (c Config) firstEpoch(now time.Time) uint32 {
	since := now.Sub(epochZero) / time.Second
	return max(c.MinEpoch, uint32(min(max(since, 1), 1<<31-1)))
}

var epochZero = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
