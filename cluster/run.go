package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"

	"github.com/coordd/coord/cluster/peerpb"
)

const (
	// drainTimeout bounds how long a stopping server waits for answers to what
	// it has proposed.
	drainTimeout = time.Second
	// stopTimeout bounds the whole of a stop. What takes longer hangs in the
	// disk, and is left behind: the process is about to end.
	stopTimeout = 4500 * time.Millisecond
)

// Run starts Raft and serves the peers until ctx ends; then it hands leadership
// over, waits for what is under way and stops, within 5 s with or without a
// quorum. It returns nil after such a stop and the reason otherwise. No
// goroutine outlives it, unless the disk hangs. It may be called once; the node
// is closed afterwards.
func (n *Node) Run(ctx context.Context) error {
	if n.started.Swap(true) {
		return errors.New("cluster node was started before")
	}
	r, err := n.startRaft()
	if err != nil {
		return errors.Join(err, n.Close())
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	members, guests := newMemberServer(), newGuestServer()
	served := make(chan error, 2)
	n.servePeers(members, n.net.rpcListener(), served)
	n.servePeers(guests, n.net.guestListener(), served)
	var parts sync.WaitGroup
	for _, part := range n.parts(r) {
		parts.Go(func() { part(life) })
	}
	select {
	case <-ctx.Done():
		err = nil
	case err = <-served:
		err = fmt.Errorf("peer port: %w", err)
	case err = <-n.removed:
	}
	n.log.Info("stopping", "event", "stopping")
	deadline := time.Now().Add(stopTimeout)
	if !n.stopping.Load() { // else it was cut off, and nobody would hear of it
		n.wind(context.WithoutCancel(ctx))
	}
	stop()
	n.halt(deadline, r, &parts, members, guests)
	return err
}

// servePeers answers other servers that come through l.
func (n *Node) servePeers(s *grpc.Server, l net.Listener, served chan<- error) {
	peerpb.RegisterPeerServer(s, &peerService{node: n})
	n.wg.Go(func() { served <- s.Serve(l) })
}

// parts are the loops of a running node.
func (n *Node) parts(r *raft.Raft) []func(context.Context) {
	return []func(context.Context){
		func(ctx context.Context) { n.watchRole(ctx, r) },
		n.losses.run, n.rounds.run, n.reads.run, n.signs.run, n.reporter.run, n.leadLoop, n.forwardLoop, n.bootLoop,
		n.form.run, n.snapshots.run, n.trimLoop, n.diskLoop,
	}
}

// startRaft opens the peer port and starts Raft on it.
func (n *Node) startRaft() (*raft.Raft, error) {
	raftLog := newRaftLogger(n.raftLog())
	times := raftTimes{n.cfg.Heartbeat, n.cfg.Election, n.cfg.Lease}
	conf, err := newRaftConfig(n.id, times, raftLog)
	if err != nil {
		return nil, err
	}
	n.net = newPeerNet(n.peerNetConfig())
	t := newTransport(transportConfig{
		net: n.net, log: raftLog, store: n.stores.log, fail: n.fatal, accepts: n.disk.accepts, faults: n.cfg.transport,
	})
	n.notifier = newCommitNotifier(t, n.id)
	n.transport.Store(t)
	r, err := raft.NewRaft(conf, stateMachine{n.machine.Raft(), n}, n.stores.log, n.stores.stable, n.stores.snaps, t)
	if err != nil {
		return nil, fmt.Errorf("start raft: %w", errors.Join(err, n.restoreError()))
	}
	t.setRaft(r)
	n.raft.Store(r)
	n.changed.flash()
	return r, nil
}

// wind ends what clients can feel: leadership moves first, so that they wait for
// nothing, then what was proposed here is given time to be answered.
func (n *Node) wind(ctx context.Context) {
	if err := n.Resign(ctx); err != nil {
		n.log.Info("leadership was not handed over", "err", err)
	}
	n.stopping.Store(true)
	deadline := time.Now().Add(drainTimeout)
	for time.Now().Before(deadline) {
		if pending, _ := n.fwd.load(); pending == 0 {
			return
		}
		if _, _, ok := n.leader(); !ok {
			return // nobody will answer in time
		}
		pause(ctx, nil, 5*time.Millisecond)
	}
}

// halt ends Raft, the loops and the peer port.
func (n *Node) halt(deadline time.Time, r *raft.Raft, parts *sync.WaitGroup, servers ...*grpc.Server) {
	n.peers.close()
	// Raft never answers for entries that its state machine goroutine has not
	// come to when it is shut down, so those under way are waited for before,
	// unless they hang in the disk.
	_ = within(drainTimeout, parts.Wait)
	stopped := r.Shutdown()
	n.dialing.stop()
	n.transport.Load().CloseStreams() // replicators may wait for answers that do not come
	_ = n.net.cut()                   // nothing is left to be done about an error
	until := func(what string, f func()) {
		if err := within(time.Until(deadline), f); err != nil {
			n.log.Error("did not stop in time", "what", what, "err", err)
		}
	}
	until("loops", parts.Wait)
	for _, server := range servers {
		until("calls of peers", server.Stop)
	}
	until("raft", func() {
		_ = stopped.Error() // always nil
		close(n.raftOver)
	})
	until("stores", func() {
		if err := n.Close(); err != nil {
			n.log.Warn("close", "err", err)
		}
	})
	until("streams", n.wg.Wait)
}

// within runs f and waits for it for at most d. If it takes longer it is left
// behind: it hangs in a system call, and the process is about to end.
func within(d time.Duration, f func()) error {
	d = max(d, 10*time.Millisecond)
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-t.C:
		return fmt.Errorf("still running after %v", d)
	}
}

// Close gives back the data directory and the ports of a node that does not
// run. Run calls it at its end. It may be called twice.
func (n *Node) Close() error {
	n.closeOnce.Do(func() {
		n.stopping.Store(true)
		var errs []error
		if n.peers != nil {
			n.peers.close()
			n.dialing.stop()
		}
		if t := n.transport.Load(); t != nil {
			errs = append(errs, t.Close())
			n.notifier.close()
		}
		switch {
		case n.net != nil:
			errs = append(errs, n.net.close())
		case n.listener != nil:
			errs = append(errs, n.listener.Close())
		}
		errs = append(errs, n.stores.close())
		n.closeError = errors.Join(errs...)
	})
	return n.closeError
}

// fatal ends this server because its disk or its state cannot be trusted. The
// other servers must be able to elect, and Raft's loop may hang in the very
// write that failed: so first every connection is cut, then the process ends.
func (n *Node) fatal(err error) {
	n.fatalOnce.Do(func() {
		n.log.Error("cutting this server off", "event", "fatal", "err", err)
		n.stopping.Store(true)
		if t := n.transport.Load(); t != nil {
			t.cut()
		}
		n.cfg.Fatal(err)
	})
}
