package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/wire"
)

// serveZooKeeper takes connections until the listener is closed; from a listener
// that is secure only those with TLS.
func (s *Server) serveZooKeeper(l *connCounter, secure bool) error {
	if l == nil {
		return nil
	}
	for {
		nc, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			s.arriving.close()
			return nil
		case err != nil:
			if !passing(err) {
				return fmt.Errorf("ZooKeeper port: %w", err)
			}
			s.log.Warn("cannot take a connection", "event", "accept_failed", "port", "zookeeper", "err", err)
			time.Sleep(acceptPause)
			continue
		}
		if !s.streams.begin() {
			_ = nc.Close() // stopping
			continue
		}
		s.workers.Go(func() {
			defer s.streams.done()
			defer nc.Close()
			err := s.guarded("zookeeper", func() error { return s.handleZK(nc, secure) })
			if err != nil && !errors.Is(err, io.EOF) {
				s.log.Debug("connection not let in", "port", "zookeeper", "peer", nc.RemoteAddr().String(), "err", err)
			}
		})
	}
}

// acceptPause keeps a process without file descriptors from spinning.
const acceptPause = 50 * time.Millisecond

// passing says whether an error of accept may go away by itself.
func passing(err error) bool {
	var ne net.Error
	return errors.As(err, &ne)
}

// handleZK serves one connection to its end.
func (s *Server) handleZK(nc net.Conn, secure bool) error {
	if !s.arriving.add(nc) {
		return fsm.ErrShuttingDown
	}
	defer s.arriving.remove(nc)
	c, err := s.arriveZK(nc, secure)
	if err != nil || c == nil {
		return err
	}
	defer s.dropZK(c)
	s.hub.join(c)
	if err := c.handshake(); err != nil {
		return err
	}
	s.arriving.remove(nc)
	if err := nc.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	c.serve()
	return nil
}

// arriveZK finds out what a connection is for. One that asked with a four-letter
// word has got its answer: then there is no zkConn.
func (s *Server) arriveZK(nc net.Conn, secure bool) (*zkConn, error) {
	if err := nc.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
		return nil, err
	}
	in := newZKInput(nc)
	first, err := in.peek(1)
	if err != nil {
		return nil, err
	}
	var state *tls.ConnectionState
	switch {
	case first[0] == tlsHandshake && s.tls != nil:
		secured := tls.Server(&rereadConn{nc, bytes.NewReader(in.rest())}, s.clientTLS())
		if err := secured.Handshake(); err != nil {
			return nil, err
		}
		now := secured.ConnectionState()
		nc, state = &stallingConn{secured}, &now
		in = newZKInput(nc)
	case secure, s.tls != nil && !s.cfg.ZooKeeper.Plaintext:
		return nil, errors.New("not TLS")
	}
	word, err := in.peek(4)
	if err != nil {
		return nil, err
	}
	if answer, ok := s.words.answer(string(word)); ok {
		_, err := nc.Write([]byte(answer))
		return nil, err
	}
	return newZKConn(s, nc, in, s.auth.arrived(nc.RemoteAddr(), state)), nil
}

// tlsHandshake is the first byte of a TLS connection. A frame's length begins with
// it only if it is far too long.
const tlsHandshake = 0x16

// stallingConn bounds each write of a TLS connection, which does not pass the
// deadlines of what it wraps.
type stallingConn struct{ *tls.Conn }

func (c *stallingConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeStall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// dropZK forgets a connection. Its writes may still be applied; nobody waits for
// their answers.
func (s *Server) dropZK(c *zkConn) {
	c.stop()
	c.out.end()
	c.pipe.close() // a sync may be under way, and watches stand behind it
	id, gen := c.give()
	s.hub.leave(c, id)
	if id != 0 {
		s.node.DropLine(id, gen)
		s.logEnd(id, c.guest.address, c.why.Load())
	}
}

// zkSweepEvery is how often it is looked for clients that the leader has not heard
// of in time.
const zkSweepEvery = 200 * time.Millisecond

// sweepZK closes the connections whose clients could lose their sessions here:
// pings are answered at once, so a client cannot see that the leader does not hear
// of it. When a third of its timeout has passed without that, it is sent to another
// server, for which it has the rest.
func (s *Server) sweepZK(ctx context.Context) {
	if s.zkListener == nil {
		return
	}
	tick := time.NewTicker(zkSweepEvery)
	defer tick.Stop()
	var list []stream
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !s.cfg.ZooKeeper.ReadOnly && s.cluster.OldestUncounted() <= s.cfg.Session.Min/3 {
			continue // nobody can be overdue: no session has a shorter timeout
		}
		list = s.hub.appendStreams(list[:0])
		for _, st := range list {
			if c, ok := st.(*zkConn); ok {
				s.sweepOne(c)
			}
		}
		clear(list)
	}
}

func (s *Server) sweepOne(c *zkConn) {
	if s.cfg.ZooKeeper.ReadOnly && c.readOnly.Load() != s.cutOff() {
		c.end(errReadOnly)
		return
	}
	id, gen, timeout := c.bound()
	if id != 0 && s.cluster.Uncounted(id, gen) > timeout/3 {
		c.end(errUncounted)
	}
}

var errUncounted = errors.New("the leader has not heard of this client for a third of its session's timeout")

// count counts an answered request.
func (c *zkConn) count(op opName, err error, start int64) {
	m := c.s.metrics
	m.count(protoZooKeeper, op, fsm.CodeOf(err))
	took := c.s.clock.since(start)
	m.by[protoZooKeeper].durations[op].observe(took)
	c.countSent()
	c.s.words.stats.observe(took)
}

// countSent counts a reply for the words.
func (c *zkConn) countSent() {
	c.sent.Add(1)
	c.s.words.stats.sent.Add(1)
}

// context is done when the connection is, or the server stops.
func (c *zkConn) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	c.s.workers.Go(func() {
		defer cancel()
		select {
		case <-c.stopped:
		case <-c.s.stopping:
		case <-ctx.Done():
		}
	})
	return ctx, cancel
}

// expiredZK tells a client that its session is over.
func (c *zkConn) expired(q *wire.ConnectRequest, err error) error {
	c.out.raw(wire.Expired(q.HasReadOnly).Append(nil))
	c.end(err)
	c.flush()
	return err
}

// flush sends what is queued, for a connection that is not served.
func (c *zkConn) flush() {
	p := c.out.take()
	_ = c.write(p.bytes()) // the connection ends in any case
	p.release()
}
