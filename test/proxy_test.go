package test

import (
	"bufio"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between clients and one server and can lose what the server
// answers, as a network does that breaks after a request has arrived.
type proxy struct {
	target   string
	listener net.Listener
	mute     atomic.Bool // answers are read and thrown away
	refuse   atomic.Bool // new connections are closed at once
	mu       sync.Mutex
	conns    map[net.Conn]bool
	wg       sync.WaitGroup
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: target, listener: l, conns: map[net.Conn]bool{}}
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

// proxies puts one in front of each server and returns their addresses.
func proxies(t testing.TB, endpoints []string) (all []*proxy, addresses []string) {
	t.Helper()
	for _, e := range endpoints {
		p := newProxy(t, e)
		all = append(all, p)
		addresses = append(addresses, p.address())
	}
	return all, addresses
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) serve() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.refuse.Load() {
			in.Close()
			continue
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[in], p.conns[out] = true, true
		p.mu.Unlock()
		p.wg.Go(func() { p.pipe(out, in, nil) })
		p.wg.Go(func() { p.pipe(in, out, &p.mute) })
	}
}

// pipe copies until either side ends, and then ends both.
func (p *proxy) pipe(dst, src net.Conn, mute *atomic.Bool) {
	if mute == nil {
		_, _ = io.Copy(dst, src)
	} else {
		_ = copyFrames(dst, src, mute)
	}
	p.mu.Lock()
	delete(p.conns, src)
	delete(p.conns, dst)
	p.mu.Unlock()
	src.Close()
	dst.Close()
}

// copyFrames copies the HTTP/2 frames of a server. While mute is set it drops
// those that carry answers and lets the connection's own pass, so that clients
// can connect and ask.
func copyFrames(dst io.Writer, src io.Reader, mute *atomic.Bool) error {
	const headerBytes, settings, ping, windowUpdate = 9, 4, 6, 8
	r := bufio.NewReaderSize(src, 64<<10)
	for {
		header, err := r.Peek(headerBytes)
		if err != nil {
			return err
		}
		length := int64(header[0])<<16 | int64(header[1])<<8 | int64(header[2])
		kind, to := header[3], dst
		if mute.Load() && kind != settings && kind != ping && kind != windowUpdate {
			to = io.Discard
		}
		if _, err := io.CopyN(to, r, headerBytes+length); err != nil {
			return err
		}
	}
}

// cut breaks all connections that stand.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}
