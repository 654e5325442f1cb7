package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/coordd/coord/cluster/peerpb"
)

// stream is a gRPC stream on which each request has one reply, in order.
type stream[Q, A any] interface {
	Send(*Q) error
	Recv() (*A, error)
	CloseSend() error
}

// opener opens a stream to a peer.
type opener[Q, A any] func(context.Context, peerpb.PeerClient) (stream[Q, A], error)

func openTerms(ctx context.Context, c peerpb.PeerClient) (stream[peerpb.TermRequest, peerpb.TermReply], error) {
	return c.Terms(ctx)
}

func openReadIndexes(ctx context.Context, c peerpb.PeerClient) (stream[peerpb.ReadIndexRequest, peerpb.ReadIndexReply], error) {
	return c.ReadIndexes(ctx)
}

func openReports(ctx context.Context, c peerpb.PeerClient) (stream[peerpb.ReportRequest, peerpb.ReportReply], error) {
	return c.Reports(ctx)
}

// dialogue asks one peer one question at a time over a stream that it opens when
// it needs one. After an error the stream is given up and the next question
// opens another. It is for one goroutine.
type dialogue[Q, A any] struct {
	peers   *peers
	to      serverID
	open    opener[Q, A]
	timeout time.Duration

	stream stream[Q, A]
	life   context.Context // of the stream
	cancel context.CancelFunc
}

// ask sends q and waits for the reply, for at most its timeout.
func (l *dialogue[Q, A]) ask(ctx context.Context, q *Q) (*A, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	if l.cancel == nil { // the stream outlives this call, if the call ends well
		l.life, l.cancel = context.WithCancel(context.Background())
	}
	stop := context.AfterFunc(ctx, l.cancel)
	a, err := l.exchange(q)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("ask %s: %w", l.to, err)
	}
	return a, nil
}

func (l *dialogue[Q, A]) exchange(q *Q) (*A, error) {
	if l.stream == nil {
		client, err := l.peers.client(l.to)
		if err != nil {
			return nil, err
		}
		if l.stream, err = l.open(l.life, client); err != nil {
			return nil, err
		}
	}
	if err := l.stream.Send(q); err != nil {
		// The reason is what Recv says; Send only says that the stream is over.
		if _, rerr := l.stream.Recv(); rerr != nil {
			err = rerr
		}
		return nil, err
	}
	return l.stream.Recv()
}

// close gives the stream up.
func (l *dialogue[Q, A]) close() {
	if l.cancel != nil {
		l.cancel()
	}
	l.stream, l.life, l.cancel = nil, nil, nil
}

// deposition looks now and then whether a server still leads. It costs a timer
// and nothing else as long as answers come fast.
type deposition struct {
	node   *Node
	leader serverID
	then   func()

	mu    sync.Mutex
	timer *time.Timer // guarded by mu; nil when stopped
}

// whenDeposed calls then, at most a roleTick late, when leader is not known to
// lead any more, unless it is stopped before.
func (n *Node) whenDeposed(leader serverID, then func()) *deposition {
	d := &deposition{node: n, leader: leader, then: then}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer = time.AfterFunc(roleTick, d.look)
	return d
}

func (d *deposition) look() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer == nil {
		return
	}
	if id, _, ok := d.node.leader(); !ok || id != d.leader {
		d.then()
		return
	}
	d.timer.Reset(roleTick)
}

func (d *deposition) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer.Stop()
	d.timer = nil
}

// leaderDialogue is a dialogue with whoever leads at the moment.
type leaderDialogue[Q, A any] struct {
	node    *Node
	timeout time.Duration
	open    opener[Q, A]
	link    *dialogue[Q, A]
}

func newLeaderDialogue[Q, A any](n *Node, timeout time.Duration, open opener[Q, A]) *leaderDialogue[Q, A] {
	return &leaderDialogue[Q, A]{node: n, timeout: timeout, open: open}
}

// ask asks leader. A leader that is frozen does not answer, so the question ends
// when leader is not known to lead any more.
func (l *leaderDialogue[Q, A]) ask(ctx context.Context, leader serverID, q *Q) (*A, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer l.node.whenDeposed(leader, cancel).stop()
	if l.link == nil || l.link.to != leader {
		l.close()
		l.link = &dialogue[Q, A]{peers: l.node.peers, to: leader, open: l.open, timeout: l.timeout}
	}
	return l.link.ask(ctx, q)
}

func (l *leaderDialogue[Q, A]) close() {
	if l.link != nil {
		l.link.close()
		l.link = nil
	}
}
