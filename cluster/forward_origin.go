package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/coordd/coord/cluster/peerpb"
	"github.com/coordd/coord/fsm"
)

// forwardRetry is the pause after an offering that failed at once.
const forwardRetry = 5 * time.Millisecond

// errDeposed ends an offering because another leader, or another term of the
// same one, is known.
var errDeposed = errors.New("there is another leader")

// offering is a leadership to which this server offers what it has.
type offering interface {
	// send hands commands over, in order. It may wait.
	send(cmds [][]byte) error
	// lost is closed when what was sent may not be looked after any more.
	lost() <-chan struct{}
	close()
}

// forwardLoop offers what is pending to the leader of the moment until ctx
// ends.
func (n *Node) forwardLoop(ctx context.Context) {
	for ctx.Err() == nil {
		changed := n.changed.C()
		leader, term, ok := n.leader()
		if !ok {
			awaitChange(ctx, changed)
			continue
		}
		if err := n.offerTo(ctx, leader, term); err != nil && ctx.Err() == nil {
			n.log.Debug("offering ended", "peer", string(leader), "term", term, "err", err)
			pause(ctx, nil, forwardRetry)
		}
	}
}

// offerTo offers everything that is pending to the leader of term, and what
// comes from then on, until that leadership ends or cannot be reached.
func (n *Node) offerTo(ctx context.Context, leader serverID, term uint64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	n.wg.Go(func() { // a send to a leader that is frozen waits until this ends it
		n.awaitOther(ctx, leader, term)
		cancel(errDeposed)
	})
	o, err := n.openOffering(ctx, leader, term)
	if err != nil {
		return err
	}
	defer o.close()
	n.fwd.reofferAll()
	if boot := n.fwd.boots(); boot != nil {
		if err := o.send([][]byte{boot}); err != nil {
			return err
		}
	}
	for {
		for cmds := n.fwd.take(); len(cmds) > 0; cmds = n.fwd.take() {
			if f := n.cfg.Faults.Forward; f != nil {
				cmds = f(cmds)
			}
			if err := o.send(cmds); err != nil {
				return err
			}
		}
		select {
		case <-n.fwd.wake:
		case <-o.lost():
			return fmt.Errorf("offering to %s: %w", leader, errReignOver)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// awaitOther returns when leader is not known to lead term any more, or ctx
// ends.
func (n *Node) awaitOther(ctx context.Context, leader serverID, term uint64) {
	for ctx.Err() == nil {
		changed := n.changed.C()
		if l, t, ok := n.leader(); !ok || l != leader || t != term {
			return
		}
		pause(ctx, changed, n.cfg.slowly(roleTick))
	}
}

func (n *Node) openOffering(ctx context.Context, leader serverID, term uint64) (offering, error) {
	if leader != n.id {
		return n.openRemoteOffering(ctx, leader, term)
	}
	r, err := n.awaitReign(ctx, term)
	if err != nil {
		return nil, err
	}
	return &localOffering{ctx, r}, nil
}

// localOffering is the short way of the leader's own server.
type localOffering struct {
	ctx   context.Context
	reign *reign
}

func (o *localOffering) send(cmds [][]byte) error { return o.reign.batch.offer(o.ctx, cmds) }
func (o *localOffering) lost() <-chan struct{}    { return o.reign.over }
func (o *localOffering) close()                   {}

// remoteOffering is a forward stream. If the leader is slow to take what is
// sent, the flow control of the stream makes send wait.
type remoteOffering struct {
	stream interface {
		Send(*peerpb.ForwardRequest) error
		Recv() (*peerpb.ForwardReply, error)
	}
	cancel context.CancelFunc
	gone   chan struct{}
}

// openRemoteOffering returns when the leader reads this stream and no older one
// of this server.
func (n *Node) openRemoteOffering(ctx context.Context, leader serverID, term uint64) (offering, error) {
	client, err := n.peers.client(leader)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	// A leader that does not answer is given up when another is known; the
	// timer is for one that is frozen and still taken for the leader.
	patience := time.AfterFunc(n.forwardPatience(), cancel)
	defer patience.Stop()
	s, err := client.Forward(ctx)
	if err == nil {
		err = s.Send(&peerpb.ForwardRequest{Id: string(n.id), Term: term})
	}
	if err == nil || errors.Is(err, io.EOF) {
		var first *peerpb.ForwardReply
		if first, err = s.Recv(); err == nil && !first.GetReady() {
			err = fmt.Errorf("%s refused: %s", leader, first.GetRefused())
		}
	}
	if err != nil {
		cancel()
		return nil, err
	}
	o := &remoteOffering{stream: s, cancel: cancel, gone: make(chan struct{})}
	n.wg.Go(o.watch)
	return o, nil
}

// forwardPatience is how long a leader may take to accept a stream.
func (n *Node) forwardPatience() time.Duration { return 5 * n.cfg.Election }

// watch waits for the end of the stream.
func (o *remoteOffering) watch() {
	defer close(o.gone)
	for {
		rep, err := o.stream.Recv()
		if err != nil || rep.GetRefused() != "" {
			return
		}
	}
}

func (o *remoteOffering) send(cmds [][]byte) error {
	return o.stream.Send(&peerpb.ForwardRequest{Commands: cmds})
}

func (o *remoteOffering) lost() <-chan struct{} { return o.gone }
func (o *remoteOffering) close()                { o.cancel(); <-o.gone }

// bootLoop waits until this start of the server has a number line in the state.
func (n *Node) bootLoop(ctx context.Context) {
	for ctx.Err() == nil {
		booted := false
		n.machine.View(func(v *fsm.View) {
			l := v.Sessions.ServerLine(string(n.id))
			booted = l != nil && l.Boot == n.boot
		})
		if booted {
			n.fwd.setBooted()
			return
		}
		pause(ctx, n.bootSeen, roleTick)
	}
}
