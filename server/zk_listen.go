package server

import (
	"errors"
	"fmt"
	"net"
)

// listenZooKeeper opens the ports for ZooKeeper's clients. They share one limit of
// connections.
func (s *Server) listenZooKeeper() error {
	cfg := s.cfg.ZooKeeper
	if cfg.Address == "" {
		return nil
	}
	l, err := s.cfg.Listener("tcp", cfg.Address)
	if err != nil {
		return fmt.Errorf("listen.zookeeper: %w", err)
	}
	s.zkListener = newConnCounter(l, s.limits)
	if cfg.SecureAddress == "" {
		return nil
	}
	if l, err = s.cfg.Listener("tcp", cfg.SecureAddress); err != nil {
		return fmt.Errorf("listen.zookeeper_tls: %w", err)
	}
	s.zkSecure = s.zkListener.beside(l)
	return nil
}

func (s *Server) closeZooKeeper() error {
	var errs []error
	for _, l := range []*connCounter{s.zkListener, s.zkSecure} {
		if l != nil {
			errs = append(errs, notClosed(l.Close()))
		}
	}
	return errors.Join(errs...)
}

// advertisedZooKeeper is what clients are told. A server by itself that is listened
// to on all addresses, with a peer port on loopback, does not know what it is called
// from afar: it tells nothing, since clients such as Curator's go where they are
// told to.
func (s *Server) advertisedZooKeeper() string {
	if s.zkListener == nil {
		return s.cfg.Advertise.ZooKeeper
	}
	address := s.cfg.advertised(s.cfg.Advertise.ZooKeeper, s.zkListener)
	bound, _ := s.zkListener.Addr().(*net.TCPAddr)
	alone := len(s.cfg.Cluster.Peers) == 1 && bound != nil && bound.IP.IsUnspecified()
	if s.cfg.Advertise.ZooKeeper == "" && alone && loopback(hostPart(address)) {
		return ""
	}
	return address
}
