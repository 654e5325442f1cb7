package client

import (
	"context"
	"time"

	"github.com/coordd/coord/api/coordpb"
)

// run keeps a connection to the endpoint for as long as the pulse lives.
func (p *pulse) run(ctx context.Context) {
	for failures := 1; ctx.Err() == nil; failures++ {
		began := time.Now()
		err := p.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		p.core.opts.log.Debug("heartbeat connection lost", "peer", p.endpoint, "err", err)
		if time.Since(began) > time.Second {
			failures = 1
		}
		sleep(ctx, min(p.core.opts.retry.wait(failures), p.shortest()/12))
	}
}

// connect sends heartbeats over one connection until it fails or brings no
// answers.
func (p *pulse) connect(ctx context.Context) error {
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	p.begin(cut)
	defer p.end()
	l, err := p.core.newLink(p.endpoint)
	if err != nil {
		return err
	}
	defer l.close()
	if err := l.ready(ctx); err != nil {
		return err
	}
	stream, err := coordpb.NewCoordClient(l.cc).Heartbeat(ctx)
	if err != nil {
		return plain(err)
	}
	p.opened()
	broken := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		broken <- p.receive(ctx, stream)
	}()
	err = p.send(stream, broken)
	cut(nil)
	<-done
	return err
}

// begin notes that there is a connection, which cut ends.
func (p *pulse) begin(cut context.CancelCauseFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.heard = cut, time.Now()
}

// opened notes that heartbeats can be sent: everybody's is due.
func (p *pulse) opened() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = time.Now()
	for _, m := range p.due { // all at the same time is a heap, too
		m.next = p.heard
	}
}

func (p *pulse) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = nil
}

// send sends heartbeats as they are due.
func (p *pulse) send(stream coordpb.Coord_HeartbeatClient, broken <-chan error) error {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case err := <-broken:
			return err
		case <-p.wake:
		case <-next.C:
		}
		for m := p.take(); m != nil; m = p.take() {
			if err := stream.Send(m); err != nil {
				return <-broken
			}
		}
		next.Reset(p.untilDue())
	}
}

// receive takes in answers until the stream ends.
func (p *pulse) receive(ctx context.Context, stream coordpb.Coord_HeartbeatClient) error {
	for {
		r, err := stream.Recv()
		if cause := context.Cause(ctx); err != nil && cause != nil {
			return cause
		}
		if err != nil {
			return plain(err)
		}
		if len(r.Answers) == 0 {
			p.answered(&coordpb.BeatAnswer{SessionId: r.SessionId, Number: r.Number, Error: r.Error})
			continue
		}
		for _, a := range r.Answers {
			p.answered(a)
		}
	}
}
