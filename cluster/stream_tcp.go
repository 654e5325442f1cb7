package cluster

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"
)

// Liveness of peer connections on a real network. A link that is cut without a
// word must be noticed in seconds: TCP itself retransmits with growing pauses for
// minutes, and a link that heals meanwhile would not be used.
const (
	tcpProbeIdle     = time.Second
	tcpProbeInterval = time.Second
	tcpProbeCount    = 3
	// tcpUnacked is how long sent bytes may stay unacknowledged.
	tcpUnacked = 3 * time.Second
)

func tcpKeepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: tcpProbeIdle, Interval: tcpProbeInterval, Count: tcpProbeCount}
}

// listenPeerTCP opens the peer port.
func listenPeerTCP(ctx context.Context, addr string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: tcpKeepAlive(), Control: controlTCP}
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for peers on %s: %w", addr, err)
	}
	return l, nil
}

// dialPeerTCP connects to the peer port at addr.
func dialPeerTCP(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: tcpKeepAlive(), Control: controlTCP}
	return d.DialContext(ctx, "tcp", addr)
}

// controlTCP sets what has to be set on the socket before it connects or
// accepts; accepted sockets inherit it.
func controlTCP(_, _ string, c syscall.RawConn) error {
	var err error
	if cerr := c.Control(func(fd uintptr) { err = setUnackedLimit(int(fd), tcpUnacked) }); cerr != nil {
		return cerr
	}
	return err
}
