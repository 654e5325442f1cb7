package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/coordd/coord/wire"
)

// Config is everything that can be set, in the words of the configuration
// file. A setting's name is its path in the file (raft.log_store); the
// environment (COORDD_RAFT_LOG_STORE) and flags (--raft-log-store) follow from
// it, see settings.go. A secret has no flag.
type Config struct {
	Cluster   ClusterConfig   `yaml:"cluster"`
	Autopilot AutopilotConfig `yaml:"autopilot"`
	Node      NodeConfig      `yaml:"node"`
	Listen    ListenConfig    `yaml:"listen"`
	Announce  AnnounceConfig  `yaml:"announce"`
	TLS       TLSConfig       `yaml:"tls"`
	Auth      AuthConfig      `yaml:"auth"`
	Session   SessionConfig   `yaml:"session"`

	ZooKeeper ZooKeeperConfig `yaml:"zookeeper"`

	Limits   LimitsConfig `yaml:"limits"`
	Raft     RaftConfig   `yaml:"raft"`
	Log      LogConfig    `yaml:"log"`
	Debug    DebugConfig  `yaml:"debug"`
	Insecure bool         `yaml:"insecure" help:"listen beyond loopback without TLS; everybody is admin"`
}

// ClusterConfig says which cluster this server belongs to.
type ClusterConfig struct {
	Name      string   `yaml:"name" help:"the cluster's name, the same on all servers"`
	Bootstrap string   `yaml:"bootstrap" help:"manual: wait for 'coordctl cluster init'; auto: form a new cluster when all peers are empty"`
	Peers     []string `yaml:"peers" help:"all servers that may vote, as name=host:port of their peer ports"`
	Observers []string `yaml:"observers" help:"servers that never vote, in the same form: they serve reads and watches and forward writes"`
}

// AutopilotConfig says what the leader does about the membership by itself.
type AutopilotConfig struct {
	RemoveDeadAfter time.Duration `yaml:"remove_dead_after" help:"take a voter that was silent for this long out of the cluster, if that lowers the quorum; 0: never"`
}

// NodeConfig is what differs from server to server.
type NodeConfig struct {
	Name    string `yaml:"name" help:"this server's name in cluster.peers; default: the host name if it is there"`
	DataDir string `yaml:"data_dir" help:"directory for log, votes and snapshots; default: $STATE_DIRECTORY, else ./coordd-data"`
}

// ListenConfig has the addresses to listen on.
type ListenConfig struct {
	GRPC      string `yaml:"grpc" help:"address for clients"`
	Peer      string `yaml:"peer" help:"address for the other servers; default: this server's address in cluster.peers"`
	HTTP      string `yaml:"http" help:"address for health and metrics; empty: off"`
	ZooKeeper string `yaml:"zookeeper" help:"address for ZooKeeper clients; empty: off"`

	ZooKeeperTLS string `yaml:"zookeeper_tls" help:"second address for ZooKeeper clients, for TLS only; listen.zookeeper takes TLS too; empty: off"`
}

// AnnounceConfig has the addresses that others are told.
type AnnounceConfig struct {
	GRPC string `yaml:"grpc" help:"address that clients are told; default: the one listened on"`
	HTTP string `yaml:"http" help:"address that operators are told; default: the one listened on"`

	ZooKeeper string `yaml:"zookeeper" help:"address that ZooKeeper clients are told; default: the one listened on"`
}

// ZooKeeperConfig says how ZooKeeper clients are served at listen.zookeeper.
type ZooKeeperConfig struct {
	Plaintext bool     `yaml:"plaintext" help:"with TLS: take clients without it, too"`
	ReadOnly  bool     `yaml:"read_only" help:"without a majority: show what is known here to clients that ask for a read-only server"`
	FrameSize Size     `yaml:"frame_size" help:"largest request of a ZooKeeper client; ZooKeeper calls it jute.maxbuffer"`
	Words     []string `yaml:"words" help:"four-letter words that are answered; '*' is all"`
}

// TLSConfig names the certificate files of all ports.
type TLSConfig struct {
	CA      string `yaml:"ca" help:"PEM file of the trusted authorities"`
	Cert    string `yaml:"cert" help:"PEM file of this server's certificate and chain"`
	Key     string `yaml:"key" help:"PEM file of its private key"`
	Clients string `yaml:"clients" help:"certificates of clients: none, verify-if-given or require"`
}

// AuthConfig names the superusers.
type AuthConfig struct {
	Superusers  []string `yaml:"superusers" help:"certificate names (CN) that may do everything"`
	SuperDigest string   `yaml:"super_digest" secret:"true" help:"digest identity super:<hash> that passes every ACL"`
}

// SessionConfig bounds the session timeouts that clients may ask for.
type SessionConfig struct {
	Min     time.Duration `yaml:"min" help:"shortest session timeout granted"`
	Default time.Duration `yaml:"default" help:"timeout for clients that ask for none"`
	Max     time.Duration `yaml:"max" help:"longest session timeout granted"`
}

// LimitsConfig bounds what clients may use. Zero means no limit where the help
// says so.
type LimitsConfig struct {
	NodeSize              Size `yaml:"node_size" help:"largest data of one znode"`
	PathSize              Size `yaml:"path_size" help:"longest path"`
	FrameSize             Size `yaml:"frame_size" help:"largest message of a client"`
	OpsPerTransaction     int  `yaml:"ops_per_transaction" help:"most operations in one transaction"`
	ChildrenPerReply      int  `yaml:"children_per_reply" help:"most children in one page of a listing"`
	WatchesPerSession     int  `yaml:"watches_per_session" help:"most watches of one session"`
	Sessions              int  `yaml:"sessions" help:"most open sessions of the cluster; 0: no limit"`
	SessionsPerAddress    int  `yaml:"sessions_per_address" help:"most sessions from one address; 0: no limit"`
	Connections           int  `yaml:"connections" help:"most client connections; 0: no limit"`
	ConnectionsPerAddress int  `yaml:"connections_per_address" help:"most client connections from one address; 0: no limit"`
	RequestsInFlight      int  `yaml:"requests_in_flight" help:"most unanswered requests of one session"`
	UnaryInFlight         int  `yaml:"unary_in_flight" help:"most unanswered calls without a session"`
	WritesPerSecond       int  `yaml:"writes_per_second" help:"most writes of one session in a second; 0: no limit"`
	QueueSize             Size `yaml:"queue_size" help:"most bytes waiting for one slow client"`
}

// RaftConfig tunes consensus and its disk.
type RaftConfig struct {
	Heartbeat       time.Duration `yaml:"heartbeat" help:"a follower without news for this long looks for a leader; 500ms and more across sites"`
	Election        time.Duration `yaml:"election" help:"a candidate tries again after this long"`
	Lease           time.Duration `yaml:"lease" help:"a leader without a quorum for this long steps down; 0: as long as heartbeat"`
	WriteDeadline   time.Duration `yaml:"write_deadline" help:"a log write that takes longer ends the server, so that the others go on"`
	SnapshotLogSize Size          `yaml:"snapshot_log_size" help:"write a snapshot after this much log"`
	DiskReserve     Size          `yaml:"disk_reserve" help:"room kept on the disk for releases and ends of sessions; writes are refused when less than as much again is free; 0: none"`
	LogStore        string        `yaml:"log_store" help:"wal (one flush a write) or boltdb (two)"`
}

// LogConfig says what is logged and how.
type LogConfig struct {
	Level       string        `yaml:"level" help:"debug, info, warn or error"`
	Format      string        `yaml:"format" help:"auto (text on a terminal, else json), text or json"`
	SlowRequest time.Duration `yaml:"slow_request" help:"log requests slower than this; 0: none"`
}

// DebugConfig has what only developers of coordd need.
type DebugConfig struct {
	Pprof      bool `yaml:"pprof" help:"serve /debug/pprof/ on the HTTP port"`
	Reflection bool `yaml:"reflection" help:"serve gRPC reflection, for grpcurl"`
}

func defaultConfig() Config {
	return Config{
		Cluster: ClusterConfig{Name: "coord", Bootstrap: "manual"},

		Autopilot: AutopilotConfig{RemoveDeadAfter: 10 * time.Minute},

		Listen:  ListenConfig{GRPC: "127.0.0.1:7420", HTTP: "127.0.0.1:7422"},
		TLS:     TLSConfig{Clients: "verify-if-given"},
		Session: SessionConfig{Min: 2 * time.Second, Default: 10 * time.Second, Max: 5 * time.Minute},
		Limits: LimitsConfig{
			NodeSize: 1 << 20, PathSize: 4 << 10, FrameSize: 4 << 20,
			OpsPerTransaction: 4096, ChildrenPerReply: 100_000, WatchesPerSession: 100_000,
			Connections: 20_000, RequestsInFlight: 1024, UnaryInFlight: 4096, QueueSize: 16 << 20,
		},
		Raft: RaftConfig{
			Heartbeat: 200 * time.Millisecond, Election: 200 * time.Millisecond,
			WriteDeadline: 5 * time.Second, SnapshotLogSize: 64 << 20, DiskReserve: 64 << 20, LogStore: "wal",
		},
		ZooKeeper: ZooKeeperConfig{FrameSize: wire.MaxFrameBytes, Words: []string{"srvr", "ruok", "isro"}},

		Log:   LogConfig{Level: "info", Format: "auto", SlowRequest: 100 * time.Millisecond},
		Debug: DebugConfig{Reflection: true},
	}
}

// mistake is what is wrong with a setting, or with all below that name.
type mistake struct {
	name string
	err  error
}

// validate checks what the file alone can tell; addresses, limits and raft
// timing are checked again by the packages that use them.
func (c *Config) validate() error {
	var errs []error
	for _, m := range c.mistakes() {
		errs = append(errs, m.err)
	}
	return errors.Join(errs...)
}

func (c *Config) mistakes() (out []mistake) {
	add := func(name string, err error) {
		if err != nil {
			out = append(out, mistake{name, err})
		}
	}
	oneOf := func(name, have string, want ...string) { add(name, oneOf(name, have, want...)) }
	positive := func(name string, v int64) { add(name, positive(name, v)) }
	oneOf("cluster.bootstrap", c.Cluster.Bootstrap, "manual", "auto")
	oneOf("tls.clients", c.TLS.Clients, "none", "verify-if-given", "require")
	oneOf("raft.log_store", c.Raft.LogStore, "wal", "boltdb")
	oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf("log.format", c.Log.Format, "auto", "text", "json")
	add("session", c.Session.validate())
	if c.Autopilot.RemoveDeadAfter < 0 {
		add("autopilot.remove_dead_after", fmt.Errorf("autopilot.remove_dead_after: %s is below zero (0 is never)", c.Autopilot.RemoveDeadAfter))
	}
	positive("limits.node_size", int64(c.Limits.NodeSize))
	positive("limits.path_size", int64(c.Limits.PathSize))
	positive("limits.frame_size", int64(c.Limits.FrameSize))
	positive("limits.ops_per_transaction", int64(c.Limits.OpsPerTransaction))
	positive("limits.children_per_reply", int64(c.Limits.ChildrenPerReply))
	positive("limits.watches_per_session", int64(c.Limits.WatchesPerSession))
	positive("limits.requests_in_flight", int64(c.Limits.RequestsInFlight))
	positive("limits.unary_in_flight", int64(c.Limits.UnaryInFlight))
	positive("limits.queue_size", int64(c.Limits.QueueSize))
	positive("zookeeper.frame_size", int64(c.ZooKeeper.FrameSize))
	positive("raft.snapshot_log_size", int64(c.Raft.SnapshotLogSize))
	return out
}

func (s SessionConfig) validate() error {
	if s.Min <= 0 || s.Min > s.Default || s.Default > s.Max {
		return fmt.Errorf("session: want 0 < min <= default <= max, have %s, %s, %s", s.Min, s.Default, s.Max)
	}
	return nil
}

func oneOf(name, have string, want ...string) error {
	for _, w := range want {
		if have == w {
			return nil
		}
	}
	return fmt.Errorf("%s: %q is none of %v", name, have, want)
}

func positive(name string, v int64) error {
	if v <= 0 {
		return fmt.Errorf("%s: %d is not above zero", name, v)
	}
	return nil
}
