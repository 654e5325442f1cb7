package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// netOf makes the peer port of id at host, in cluster, on mem.
func netOf(t *testing.T, mem *memNet, id serverID, host, cluster string, change ...func(*peerNetConfig)) *peerNet {
	t.Helper()
	cfg := peerNetConfig{
		self: id, cluster: func() string { return cluster }, listener: mem.listen(host), dial: mem.dialer(host),
		resolve: func(s serverID) (string, error) {
			if s.name() == "nobody" {
				return "", errors.New("not in the list")
			}
			return s.name(), nil
		},
		log: testLog(),
	}
	for _, c := range change {
		c(&cfg)
	}
	n := newPeerNet(cfg)
	t.Cleanup(func() { _ = n.close() })
	return n
}

// exchange sends a line each way.
func exchange(t *testing.T, a, b net.Conn) {
	t.Helper()
	for _, c := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() { _, _ = io.WriteString(c[0], "hello") }()
		buf := make([]byte, 5)
		if _, err := io.ReadFull(c[1], buf); err != nil || string(buf) != "hello" {
			t.Errorf("read %q, %v", buf, err)
		}
	}
}

func TestPeerConnectionsGoToTheirConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		a, b := netOf(t, mem, idA, "n1", clusterX), netOf(t, mem, idB, "n2", clusterX)
		if got := a.raftStream().Addr().String(); got != string(idA) {
			t.Errorf("Raft's address is %q", got)
		}
		dial := map[connKind]func() (net.Conn, error){
			connRaft: func() (net.Conn, error) { return a.raftStream().Dial(raft.ServerAddress(idB), time.Second) },
			connRPC:  func() (net.Conn, error) { return a.dialRPC(t.Context(), string(idB)) },
		}
		for kind, l := range map[connKind]net.Listener{connRaft: b.raftStream(), connRPC: b.rpcListener()} {
			out, err := dial[kind]()
			if err != nil {
				t.Fatal(err)
			}
			in, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			exchange(t, out, in)
			from, to := in.(*peerConn).info, out.(*peerConn).info
			if from.server != idA || from.cluster != clusterX || from.guest || from.kind != kind {
				t.Errorf("the acceptor knows the dialer as %+v", from)
			}
			if to.server != idB || to.cluster != clusterX || to.guest || to.kind != kind {
				t.Errorf("the dialer knows the acceptor as %+v", to)
			}
			if got := in.RemoteAddr().String(); got != string(idA)+" at n1" {
				t.Errorf("remote address %q", got)
			}
			time.Sleep(time.Hour) // the deadlines of the handshake are gone
			exchange(t, out, in)
			_ = out.Close()
			if _, err := in.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("after a close: %v", err)
			}
			_ = in.Close()
			_ = in.Close() // twice is fine
		}
		if len(a.conns)+len(b.conns)+b.inbound+b.guests != 0 {
			t.Errorf("closed connections are remembered: %d, %d", len(a.conns), len(b.conns))
		}
	})
}

func TestDialerLearnsWhyItWasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		a := netOf(t, mem, idA, "n1", clusterX)
		netOf(t, mem, idC, "n2", clusterX)
		netOf(t, mem, "n3~0000000000000001", "n3", clusterY)
		netOf(t, mem, "n4~0000000000000001", "n4", "")
		netOf(t, mem, "n5~0000000000000001", "n5", clusterX, func(c *peerNetConfig) {
			c.admit = func(p peerInfo) error { return errors.New(string(p.server) + " was removed") }
		})
		loner := netOf(t, mem, "n6~0000000000000001", "n6", "")
		for _, tc := range []struct {
			from *peerNet
			to   serverID
			kind connKind
			want error
			text string
		}{
			{a, idB, connRPC, errWrongPeer, string(idC)},
			{a, idB, connRaft, errWrongPeer, string(idC)},
			{a, "n3~0000000000000001", connRPC, errWrongCluster, clusterY},
			{a, "n4~0000000000000001", connRaft, errNoCluster, "n4"},
			{a, "n5~0000000000000001", connRaft, errNotAdmitted, "n1~000000000000000a was removed"},
			{loner, idC, connRaft, errNoCluster, ""},
			{a, "n9~0000000000000001", connRPC, errRefused, ""},
		} {
			_, err := tc.from.dialServer(t.Context(), tc.kind, tc.to)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%v to %s: %v; want %v and %q", tc.kind, tc.to, err, tc.want, tc.text)
			}
		}
		if _, err := a.dialRPC(t.Context(), "nobody~0000000000000001"); err == nil || !strings.Contains(err.Error(), "not in the list") {
			t.Errorf("a server that is not listed: %v", err)
		}
		if _, err := a.raftStream().Dial("n2", time.Second); !errors.Is(err, errBadServerID) {
			t.Errorf("Raft dials a name: %v", err)
		}
	})
}

func TestStrangerIsAGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		joiner, b := netOf(t, mem, idA, "n1", ""), netOf(t, mem, idB, "n2", clusterX)
		out, err := joiner.dialRPC(t.Context(), "n2") // an address, not an id
		if err != nil {
			t.Fatal(err)
		}
		in, err := b.guestListener().Accept()
		if err != nil {
			t.Fatal(err)
		}
		if p := in.(*peerConn).info; !p.guest || p.server != idA || p.cluster != "" {
			t.Errorf("the stranger is known as %+v", p)
		}
		if p := out.(*peerConn).info; !p.guest || p.server != idB || p.cluster != clusterX {
			t.Errorf("the stranger knows %+v", p)
		}
	})
}

// rawDial connects without a handshake.
func rawDial(t *testing.T, mem *memNet, to string) net.Conn {
	t.Helper()
	c, err := mem.dialer("stranger")(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestGarbageClosesOnlyItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		a, b := netOf(t, mem, idA, "n1", clusterX), netOf(t, mem, idB, "n2", clusterX)
		good, err := a.dialRPC(t.Context(), string(idB))
		if err != nil {
			t.Fatal(err)
		}
		in, _ := b.rpcListener().Accept()
		for _, garbage := range []string{"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "CRDP\x01\xff\xff", strings.Repeat("\x00", 1<<16)} {
			c := rawDial(t, mem, "n2")
			go func() { _, _ = io.WriteString(c, garbage) }()
			if got, _ := io.ReadAll(c); len(got) != 0 {
				t.Errorf("%.10q was answered with %q", garbage, got)
			}
			_ = c.Close()
		}
		wrongVersion := hello{kind: connRPC}.encode()
		wrongVersion[len(handshakeMagic)] = 9
		c := rawDial(t, mem, "n2")
		_, _ = c.Write(wrongVersion)
		if got, err := readAnswer(c); err != nil || got.verdict != verdictVersion || got.id != idB {
			t.Errorf("another version was answered with %+v, %v", got, err)
		}
		_ = c.Close()
		exchange(t, good, in)
	})
}

func TestSilentConnectionsEndAndDoNotKeepOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		a, b := netOf(t, mem, idA, "n1", clusterX), netOf(t, mem, idB, "n2", clusterX)
		var open []net.Conn
		for range 1000 {
			open = append(open, rawDial(t, mem, "n2"))
			synctest.Wait()
			if n := len(b.halfOpen); n > maxHalfOpen {
				t.Fatalf("%d handshakes are open", n)
			}
		}
		start := time.Now()
		good, err := a.dialRPC(t.Context(), string(idB))
		if err != nil || time.Since(start) > 0 {
			t.Fatalf("a real peer: %v after %v", err, time.Since(start))
		}
		_ = good.Close()
		for i, c := range open {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("silent connection %d: %v", i, err)
			}
			_ = c.Close()
		}
		if took := time.Since(start); took > handshakeTimeout {
			t.Errorf("they lasted %v", took)
		}
		synctest.Wait()
		if len(b.halfOpen) != 0 {
			t.Errorf("%d handshakes are still open", len(b.halfOpen))
		}
	})
}

func TestGuestsAreFewAndDoNotKeepMembersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		a, b := netOf(t, mem, idA, "n1", clusterX), netOf(t, mem, idB, "n2", clusterX)
		for _, l := range []net.Listener{b.rpcListener(), b.guestListener()} {
			go func() {
				for {
					if _, err := l.Accept(); err != nil {
						return
					}
				}
			}()
		}
		var guests []net.Conn
		for range maxGuestConns {
			c, err := a.dialRPC(t.Context(), "n2")
			if err != nil {
				t.Fatal(err)
			}
			guests = append(guests, c)
		}
		if _, err := a.dialRPC(t.Context(), "n2"); !errors.Is(err, errPeerBusy) {
			t.Errorf("one guest too many: %v", err)
		}
		var members []net.Conn
		for len(members)+len(guests) < maxPeerConns {
			c, err := a.dialRPC(t.Context(), string(idB))
			if err != nil {
				t.Fatalf("member %d: %v", len(members), err)
			}
			members = append(members, c)
		}
		if _, err := a.dialRPC(t.Context(), string(idB)); !errors.Is(err, errPeerBusy) {
			t.Errorf("one member too many: %v", err)
		}
	})
}

func TestServerThatDoesNotAnswerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		a := netOf(t, mem, idA, "n1", clusterX)
		silent := mem.listen("n2")
		defer silent.Close()
		start := time.Now()
		_, err := a.dialRPC(t.Context(), string(idB))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != handshakeTimeout {
			t.Errorf("a server that accepts and says nothing: %v after %v", err, time.Since(start))
		}
		mem.cut("n1", "n2")
		start = time.Now()
		_, err = a.raftStream().Dial(raft.ServerAddress(idB), 10*time.Second)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != handshakeTimeout {
			t.Errorf("a server that is cut off: %v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := a.dialRPC(ctx, string(idB)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a short deadline: %v", err)
		}
	})
}

func TestDialsUnderWayEndWithThePort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		a := netOf(t, mem, idA, "n1", clusterX)
		defer mem.listen("n3").Close() // accepts and says nothing
		mem.cut("n1", "n2")
		ended := make(chan error, 4)
		start := time.Now()
		for _, to := range []serverID{idB, "n3~0000000000000003"} {
			go func() { _, err := a.dialRPC(t.Context(), string(to)); ended <- err }()
			go func() { _, err := a.raftStream().Dial(raft.ServerAddress(to), time.Minute); ended <- err }()
		}
		synctest.Wait()
		_ = a.raftStream().Close()
		for range 2 { // those of Raft
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Errorf("ended with %v", err)
			}
		}
		if synctest.Wait(); len(ended) != 0 {
			t.Error("the others ended too")
		}
		_ = a.cut()
		for range 2 {
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Errorf("ended with %v", err)
			}
		}
		if time.Since(start) != 0 {
			t.Errorf("it took %v", time.Since(start))
		}
	})
}

func TestCutEndsEverythingAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		a, b := netOf(t, mem, idA, "n1", clusterX), netOf(t, mem, idB, "n2", clusterX)
		var conns []net.Conn
		for range 3 {
			c, err := a.dialRPC(t.Context(), string(idB))
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c) // two of them nobody accepts
		}
		in, _ := b.rpcListener().Accept()
		start := time.Now()
		if err := b.cut(); err != nil {
			t.Error(err)
		}
		if err := b.cut(); err != nil { // twice is fine
			t.Error(err)
		}
		for _, c := range conns {
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("a connection lives")
			}
		}
		if _, err := in.Read(make([]byte, 1)); err == nil {
			t.Error("an accepted connection lives")
		}
		if _, err := b.dialRPC(t.Context(), string(idA)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("dial after the cut: %v", err)
		}
		if _, err := b.rpcListener().Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept after the cut: %v", err)
		}
		if _, err := a.dialRPC(t.Context(), string(idB)); !errors.Is(err, errRefused) {
			t.Errorf("dial to a server that is cut: %v", err)
		}
		if time.Since(start) != 0 {
			t.Errorf("it took %v", time.Since(start))
		}
	})
}

func TestClosingRaftsStreamLeavesRPCAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		a, b := netOf(t, mem, idA, "n1", clusterX), netOf(t, mem, idB, "n2", clusterX)
		rpc, err := a.dialRPC(t.Context(), string(idB))
		if err != nil {
			t.Fatal(err)
		}
		in, _ := b.rpcListener().Accept()
		rc, err := a.raftStream().Dial(raft.ServerAddress(idB), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.raftStream().Accept(); err != nil {
			t.Fatal(err)
		}
		if err := b.raftStream().Close(); err != nil {
			t.Error(err)
		}
		if _, err := rc.Read(make([]byte, 1)); err == nil {
			t.Error("a Raft connection lives")
		}
		if _, err := b.raftStream().Dial(raft.ServerAddress(idA), time.Second); !errors.Is(err, net.ErrClosed) {
			t.Errorf("dial after close: %v", err)
		}
		exchange(t, rpc, in)
	})
}

// errListener fails a few times before it works.
type errListener struct {
	net.Listener
	left atomic.Int32
}

func (l *errListener) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, errors.New("too many open files")
	}
	return l.Listener.Accept()
}

func TestAcceptErrorsAreWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMemNet()
		a := netOf(t, mem, idA, "n1", clusterX)
		netOf(t, mem, idB, "n2", clusterX, func(c *peerNetConfig) {
			l := &errListener{Listener: c.listener}
			l.left.Store(5)
			c.listener = l
		})
		if _, err := a.dialRPC(t.Context(), string(idB)); err != nil {
			t.Error(err)
		}
	})
}

func TestPeersOverTCP(t *testing.T) {
	l, err := listenPeerTCP(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mem := newMemNet()
	addr := l.Addr().String()
	b := netOf(t, mem, idB, "n2", clusterX, func(c *peerNetConfig) { c.listener = l })
	a := netOf(t, mem, idA, "n1", clusterX, func(c *peerNetConfig) {
		c.dial, c.resolve = dialPeerTCP, func(serverID) (string, error) { return addr, nil }
	})
	out, err := a.dialRPC(t.Context(), string(idB))
	if err != nil {
		t.Fatal(err)
	}
	in, err := b.rpcListener().Accept()
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, out, in)
	_ = b.close()
	if _, err := a.dialRPC(t.Context(), string(idB)); err == nil {
		t.Error("the port is still open")
	}
	if _, err := listenPeerTCP(t.Context(), "256.0.0.1:1"); err == nil {
		t.Error("a nonsense address was opened")
	}
}
