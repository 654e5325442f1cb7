// Package localcluster runs servers inside this process, on loopback or on a
// network in memory, for tests and examples. Whole processes, which can be
// killed, are the business of `coordd dev` and of package test.
package localcluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/internal/memnet"
	"github.com/coordd/coord/server"
)

// Options say what to start. The zero value is one server with the defaults.
type Options struct {
	Servers int    // 1
	Dir     string // for data; a temporary directory, removed by Close, if empty
	// Net is the network of the servers, whose hosts are named as they are; nil
	// is loopback.
	Net *memnet.Network
	// Change may change a server's configuration before it starts; which one it
	// is stands in Cluster.Name ("n1", "n2", ...).
	Change func(*server.Config)
	Logger *slog.Logger // nothing is logged if nil
}

// Cluster is a running set of servers. Its methods may be called from any
// goroutine.
type Cluster struct {
	opts    Options
	dir     string
	ownDir  bool
	peers   []cluster.Peer
	ports   []nodePorts
	mu      sync.Mutex
	running []*node // nil while stopped
}

type nodePorts struct{ grpc, peer string }

type node struct {
	server *server.Server
	cancel context.CancelFunc
	done   chan error
}

// Start runs the servers and returns once all are ready. Close stops them.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	o.Servers = max(o.Servers, 1)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Cluster{opts: o, dir: o.Dir, running: make([]*node, o.Servers)}
	if c.dir == "" {
		dir, err := os.MkdirTemp("", "coord-local-")
		if err != nil {
			return nil, err
		}
		c.dir, c.ownDir = dir, true
	}
	if err := c.choosePorts(); err != nil {
		return nil, err
	}
	for i := range o.Servers {
		if err := c.StartServer(i); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	if err := c.WaitReady(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// StartServer starts server i (from 0) with the data it has. It does not wait
// until it is ready.
func (c *Cluster) StartServer(i int) error {
	s, err := server.New(c.config(i))
	if err != nil {
		return fmt.Errorf("%s: %w", c.peers[i].Name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{server: s, cancel: cancel, done: make(chan error, 1)}
	go func() { n.done <- s.Run(ctx) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[i] = n
	return nil
}

func (c *Cluster) config(i int) server.Config {
	cfg := server.Config{
		Cluster: cluster.Config{
			Name: c.peers[i].Name, ClusterName: "local", Peers: c.peers, Bootstrap: cluster.BootstrapAuto,
			DataDir: filepath.Join(c.dir, c.peers[i].Name), Listen: c.ports[i].peer, Logger: c.opts.Logger.With("node", c.peers[i].Name),
		},
		GRPC:   c.ports[i].grpc,
		Logger: c.opts.Logger.With("node", c.peers[i].Name),
	}
	if c.opts.Net != nil {
		c.inMemory(&cfg)
	}
	if c.opts.Change != nil {
		c.opts.Change(&cfg)
	}
	return cfg
}

// StopServer stops server i in order and keeps its data.
func (c *Cluster) StopServer(i int) error {
	c.mu.Lock()
	n := c.running[i]
	c.running[i] = nil
	c.mu.Unlock()
	if n == nil {
		return nil
	}
	n.cancel()
	return <-n.done
}

// Server is server i, nil while it is stopped.
func (c *Cluster) Server(i int) *server.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[i] == nil {
		return nil
	}
	return c.running[i].server
}

// readyTick is how often it is looked at whether the servers are ready.
const readyTick = 2 * time.Millisecond

// WaitReady waits until every running server is ready.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for i := range c.running {
		for {
			s := c.Server(i)
			if s == nil || s.Node().Status().Ready {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s is not ready: %w", c.peers[i].Name, context.Cause(ctx))
			case <-time.After(readyTick):
			}
		}
	}
	return nil
}

// Endpoints are the addresses for clients.
func (c *Cluster) Endpoints() []string {
	var out []string
	for _, p := range c.ports {
		out = append(out, p.grpc)
	}
	return out
}

// Target is what client.Dial takes.
func (c *Cluster) Target() string { return strings.Join(c.Endpoints(), ",") }

// Close stops all servers and removes the data, unless Options named the
// directory. It may be called twice.
func (c *Cluster) Close() error {
	var errs []error
	for i := range c.running {
		errs = append(errs, c.StopServer(i))
	}
	if c.ownDir {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}
