package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/internal/buildinfo"
	"github.com/coordd/coord/internal/tlsfiles"
	"github.com/coordd/coord/server"
)

func newRunCmd() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "run [FILE]",
		Short: "Run one server",
		Long: `Run one server until SIGINT or SIGTERM. On either it hands leadership over,
lets its clients move and exits.

The configuration file is the same on all servers; which of them this is comes
from COORDD_NODE_NAME, --node-name, or the host name. Environment variables
and flags override the file.

FILE may be a zoo.cfg: the server then takes the place of the ZooKeeper that
it was written for. It is told what of the file has no meaning here, and it
does not start with what would mean something else.`,
		Example: "  COORDD_NODE_NAME=n1 coordd run --config coordd.yaml\n  coordd run /etc/zookeeper/conf/zoo.cfg",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.fileArgument(args)
			c, all, err := f.load()
			if err != nil {
				return err
			}
			return runServer(cmd.Context(), &f, c, all)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func runServer(ctx context.Context, f *configFlags, c *Config, all []*setting) error {
	lv := new(slog.LevelVar)
	log := newLogger(c.Log, os.Stderr, lv)
	for _, n := range f.notes(true) {
		log.Info(n, "event", "config_note")
	}
	for _, w := range append(f.notes(false), warnings(c, all)...) {
		log.Warn(w, "event", "config_warning")
	}
	sc, err := serverConfig(c, log)
	if err != nil {
		return usageError{err}
	}
	s, err := server.New(sc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go reloadOnHangup(ctx, f, c, lv, log, s.ReloadTLS)
	if os.Getenv("GOGC") == "" {
		go tuneGC(ctx)
	}
	return s.Run(ctx)
}

// reloadOnHangup re-reads the configuration on SIGHUP. The log level and the
// content of the certificate files change at once; what cannot change is named.
func reloadOnHangup(ctx context.Context, f *configFlags, running *Config, lv *slog.LevelVar, log *slog.Logger, certificates func()) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		}
		certificates()
		next, _, err := f.load()
		if err != nil {
			log.Error("the new configuration is refused", "event", "config_refused", "err", err)
			continue
		}
		setLevel(lv, next.Log.Level)
		log.Info("configuration read again", "event", "config_reloaded", "restart_needed_for", needRestart(running, next))
	}
}

func needRestart(a, b *Config) (names []string) {
	before, after := settingsOf(a), settingsOf(b)
	for i, s := range before {
		if s.name != "log.level" && s.String() != after[i].String() {
			names = append(names, s.name)
		}
	}
	return names
}

// warnings says what a user should know although the server starts.
func warnings(c *Config, all []*setting) (out []string) {
	if c.Insecure && c.TLS.Cert == "" {
		out = append(out, "insecure is set: traffic is not encrypted and everybody who can connect is admin")
	}
	for _, name := range unknownEnv(all, os.Environ()) {
		out = append(out, "environment variable "+name+" is no setting; see 'coordd config show'")
	}
	return out
}

// serverConfig turns settings into what the server package takes.
func serverConfig(c *Config, log *slog.Logger) (server.Config, error) {
	peers, err := parsePeers(c.Cluster.Peers)
	if err != nil {
		return server.Config{}, err
	}
	observers, err := parseServers("cluster.observers", c.Cluster.Observers)
	if err != nil {
		return server.Config{}, err
	}
	self, err := findSelf(c.Node.Name, slices.Concat(peers, observers))
	if err != nil {
		return server.Config{}, err
	}
	sc := serverConfigAs(c, self, peers, log)
	return sc, sc.Validate()
}

// serverConfigAs is the configuration of the server self, not yet checked.
func serverConfigAs(c *Config, self cluster.Peer, peers []cluster.Peer, log *slog.Logger) server.Config {
	sc := server.Config{
		Cluster: clusterConfig(c, self, peers, log),
		GRPC:    c.Listen.GRPC,
		HTTP:    c.Listen.HTTP,
		TLS:     tlsfiles.Files{CA: c.TLS.CA, Cert: c.TLS.Cert, Key: c.TLS.Key},

		ClientAuth:  clientAuth(c.TLS.Clients),
		Insecure:    c.Insecure,
		Superusers:  c.Auth.Superusers,
		SuperDigest: c.Auth.SuperDigest,
		Limits:      limits(c.Limits),
		SlowRequest: c.Log.SlowRequest,
		Reflection:  c.Debug.Reflection,
		Pprof:       c.Debug.Pprof,
		Logger:      log.With("node", self.Name),
		Version:     buildinfo.Version,
	}
	sc.ZooKeeper = server.ZooKeeperPort{
		Address: c.Listen.ZooKeeper, SecureAddress: c.Listen.ZooKeeperTLS, Plaintext: c.ZooKeeper.Plaintext, ReadOnly: c.ZooKeeper.ReadOnly,
		FrameBytes: int(c.ZooKeeper.FrameSize), Words: c.ZooKeeper.Words,
	}
	sc.Advertise.GRPC, sc.Advertise.HTTP, sc.Advertise.ZooKeeper = c.Announce.GRPC, c.Announce.HTTP, c.Announce.ZooKeeper
	sc.Session.Min, sc.Session.Default, sc.Session.Max = c.Session.Min, c.Session.Default, c.Session.Max
	return sc
}

func clusterConfig(c *Config, self cluster.Peer, peers []cluster.Peer, log *slog.Logger) cluster.Config {
	listen := c.Listen.Peer
	if listen == "" {
		listen = self.Address
	}
	observers, _ := parseServers("cluster.observers", c.Cluster.Observers) // mistakes are named by who asks for the whole
	return cluster.Config{
		Name:            self.Name,
		ClusterName:     c.Cluster.Name,
		Peers:           peers,
		Observers:       observers,
		RemoveDeadAfter: c.Autopilot.RemoveDeadAfter,
		Bootstrap:       cluster.Bootstrap(c.Cluster.Bootstrap),
		DataDir:         dataDir(c.Node.DataDir),
		Listen:          listen,
		Heartbeat:       c.Raft.Heartbeat,
		Election:        c.Raft.Election,
		Lease:           c.Raft.Lease,
		WriteDeadline:   c.Raft.WriteDeadline,
		SnapshotLogSize: int64(c.Raft.SnapshotLogSize),
		DiskReserve:     diskReserve(c.Raft.DiskReserve),
		LogStore:        c.Raft.LogStore,
		SessionMin:      c.Session.Min,
		Logger:          log,
	}
}

// diskReserve is the setting as package cluster takes it, where 0 is the default.
func diskReserve(s Size) int64 {
	if s == 0 {
		return -1
	}
	return int64(s)
}

func limits(l LimitsConfig) server.Limits {
	return server.Limits{
		NodeBytes:             int(l.NodeSize),
		PathBytes:             int(l.PathSize),
		FrameBytes:            int(l.FrameSize),
		OpsPerMulti:           l.OpsPerTransaction,
		ChildrenPerReply:      l.ChildrenPerReply,
		WatchesPerSession:     l.WatchesPerSession,
		Sessions:              l.Sessions,
		SessionsPerAddress:    l.SessionsPerAddress,
		Connections:           l.Connections,
		ConnectionsPerAddress: l.ConnectionsPerAddress,
		RequestsInFlight:      l.RequestsInFlight,
		UnaryInFlight:         l.UnaryInFlight,
		WritesPerSecond:       l.WritesPerSecond,
		QueueBytes:            int(l.QueueSize),
	}
}

func clientAuth(name string) tls.ClientAuthType {
	switch name {
	case "none":
		return tls.NoClientCert
	case "require":
		return tls.RequireAndVerifyClientCert
	default:
		return tls.VerifyClientCertIfGiven
	}
}

func dataDir(configured string) string {
	if configured != "" {
		return configured
	}
	if systemd := os.Getenv("STATE_DIRECTORY"); systemd != "" {
		return filepath.Clean(systemd)
	}
	return "coordd-data"
}

// parsePeers reads name=host:port entries. It returns those that are right also
// with an error, which names all others.
func parsePeers(entries []string) ([]cluster.Peer, error) {
	if len(entries) == 0 {
		return nil, errors.New("cluster.peers is empty: list every server as name=host:port (its peer port)")
	}
	return parseServers("cluster.peers", entries)
}

// parseServers reads the entries of a setting, which may be empty.
func parseServers(setting string, entries []string) ([]cluster.Peer, error) {
	var errs []error
	peers := make([]cluster.Peer, 0, len(entries))
	for _, e := range entries {
		name, address, ok := strings.Cut(e, "=")
		if name, address = strings.TrimSpace(name), strings.TrimSpace(address); !ok || name == "" || address == "" {
			errs = append(errs, fmt.Errorf("%s: %q is not name=host:port", setting, e))
			continue
		}
		peers = append(peers, cluster.Peer{Name: name, Address: address})
	}
	return peers, errors.Join(errs...)
}

// findSelf picks this server out of all that are listed.
func findSelf(name string, peers []cluster.Peer) (cluster.Peer, error) {
	want := name
	if want == "" {
		want, _ = os.Hostname()
	}
	names := make([]string, len(peers))
	for i, p := range peers {
		if p.Name == want {
			return p, nil
		}
		names[i] = p.Name
	}
	if name == "" {
		return cluster.Peer{}, fmt.Errorf("node.name is not set and the host name %q is not in cluster.peers (%s): set COORDD_NODE_NAME", want, strings.Join(names, ", "))
	}
	return cluster.Peer{}, fmt.Errorf("node.name %q is not in cluster.peers (%s)", name, strings.Join(names, ", "))
}
