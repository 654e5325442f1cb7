package localcluster

import (
	"context"
	"fmt"
	"net"

	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/server"
)

// choosePorts gives each server its addresses.
func (c *Cluster) choosePorts() error {
	find := freePorts
	if c.opts.Net != nil {
		find = func(n int) ([]nodePorts, error) { return memoryPorts(n), nil }
	}
	var err error
	if c.ports, err = find(c.opts.Servers); err != nil {
		return err
	}
	for i, p := range c.ports {
		c.peers = append(c.peers, cluster.Peer{Name: nameOf(i), Address: p.peer})
	}
	return nil
}

// nameOf is the name of server i, and of its host on a network in memory.
func nameOf(i int) string { return fmt.Sprintf("n%d", i+1) }

func memoryPorts(n int) []nodePorts {
	var out []nodePorts
	for i := range n {
		out = append(out, nodePorts{grpc: nameOf(i) + ":7420", peer: nameOf(i) + ":7421"})
	}
	return out
}

// freePorts finds free ports by opening them all at once.
func freePorts(n int) ([]nodePorts, error) {
	var open []net.Listener
	defer func() {
		for _, l := range open {
			l.Close()
		}
	}()
	var out []nodePorts
	for range n {
		var p nodePorts
		for _, address := range []*string{&p.grpc, &p.peer} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			open = append(open, l)
			*address = l.Addr().String()
		}
		out = append(out, p)
	}
	return out, nil
}

// inMemory puts a server on the network in memory.
func (c *Cluster) inMemory(cfg *server.Config) {
	network, host := c.opts.Net, cfg.Cluster.Name
	cfg.Insecure = true // nobody else can reach it
	cfg.Listener = func(_, address string) (net.Listener, error) { return network.Listen(address) }
	cfg.Cluster.Net = cluster.Net{
		Listen: func(_ context.Context, address string) (net.Listener, error) { return network.Listen(address) },
		Dial:   func(ctx context.Context, address string) (net.Conn, error) { return network.Dial(ctx, host, address) },
	}
}
