package server

import (
	"net"
	"testing"
	"time"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/wire"
)

// TestStopDoesNotWaitForSilentConnections: neither for one that says nothing, nor
// for one that stops in the middle of its handshake.
func TestStopDoesNotWaitForSilentConnections(t *testing.T) {
	cfg := oneServer(t)
	cfg.ZooKeeper.Address = "127.0.0.1:0"
	r := start(t, cfg)
	address := r.Addrs().ZooKeeper.String()
	hello := zkFrame((&wire.ConnectRequest{Timeout: time.Second}).Append(nil))
	for _, part := range [][]byte{nil, hello[:2], hello[:10]} {
		zkDial(t, address).raw(part)
	}
	served := zkOpen(t, address)
	eventually(t, "all are taken", func() bool { return r.zkListener.count() == 4 })
	begin := time.Now()
	r.stop()
	if took := time.Since(begin); took > helloTime/2 {
		t.Errorf("it took %s to stop", took)
	}
	served.ended()
}

// TestStalledHandshakeHasATimeLimit, the first byte as well as what follows.
func TestStalledHandshakeHasATimeLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the limit")
	}
	s, _ := fakeServer(t)
	address := zkServe(t, s)
	silent, half := zkDial(t, address), zkDial(t, address)
	half.raw([]byte{0, 0})
	begin := time.Now()
	silent.ended()
	half.ended()
	if took := time.Since(begin); took > helloTime+5*time.Second {
		t.Errorf("closed after %s", took)
	}
}

// attachElsewhere moves a session to a connection at another server.
func (n *fakeNode) attachElsewhere(w *wire.ConnectResponse, expect uint64) {
	n.t.Helper()
	n.apply(&fsm.Command{Kind: fsm.CmdBoot, Boot: &fsm.Boot{Server: "n2~1", Nonce: 1}})
	n.apply(&fsm.Command{Kind: fsm.CmdAttach, Line: fsm.LineRef{Server: "n2~1", Boot: 1}, Seq: 1, Attach: &fsm.Attach{
		Session: w.Session, Secret: session.Secret(w.Password), Expect: expect, Nonce: session.Nonce{9}, Timeout: w.Timeout,
		Protocol: session.ZooKeeper, Server: "n2~1", Boot: 1,
	}})
	n.m.View(func(v *fsm.View) {
		if have := v.Sessions.Get(w.Session); have == nil || have.Generation != expect+1 {
			n.t.Errorf("the session is %+v", have)
		}
	})
}

// TestOldConnectionDoesNotTakeASessionBack: while the handshake of a connection is
// under way, its session moves to another server. If that connection is the newer
// one, the client comes a moment earlier than the news, and gets its session. If the
// client has left it, it must get neither the session nor what it asked for there.
func TestOldConnectionDoesNotTakeASessionBack(t *testing.T) {
	for _, c := range []struct {
		name   string
		behind bool          // something is sent behind the handshake
		leave  bool          // the client closes the connection
		pause  time.Duration // until the cluster answers
		taken  bool
	}{
		{name: "a client that waits", taken: true},
		{name: "a client that has asked for more", behind: true},
		{name: "a client that has gone", leave: true},
		{name: "a handshake that took long", pause: zkHaste + 50*time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, n := fakeServer(t)
			address := zkServe(t, s)
			first := zkOpen(t, address)
			n.hold()
			again := zkDial(t, address)
			frames := zkFrame((&wire.ConnectRequest{Timeout: 10 * time.Second, Session: first.welcome.Session, Password: first.welcome.Password}).Append(nil))
			if c.behind {
				frames = append(frames, again.frames(zkCreateReq("/ghost", 0))...)
			}
			again.raw(frames)
			n.outstanding(1)
			n.attachElsewhere(&first.welcome, 1)
			if c.leave {
				if err := again.net.(*net.TCPConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(c.pause)
			n.release()
			if c.taken {
				if err := again.welcome.Decode(again.frame()); err != nil || again.welcome.Session != first.welcome.Session {
					t.Errorf("%+v, %v", again.welcome, err)
				}
			} else if b, err := again.read(); err == nil {
				t.Errorf("answered %x", b)
			}
			var generation uint64
			n.m.View(func(v *fsm.View) { generation = v.Sessions.Get(first.welcome.Session).Generation })
			if taken := generation == 3; taken != c.taken || generation > 3 {
				t.Errorf("the session is at generation %d", generation)
			}
			if code, _ := zkOpen(t, address).call(zkExistsReq("/ghost")); code != wire.NoNode {
				t.Errorf("what was asked for on the old connection was done: %s", code)
			}
		})
	}
}

// TestConnectionOfASessionThatMovedEnds, and its writes are not done.
func TestConnectionOfASessionThatMovedEnds(t *testing.T) {
	c, _, n := zkPipe(t)
	n.hold()
	c.send(zkSetReq("/a", "late"))
	n.outstanding(1)
	n.attachElsewhere(&c.welcome, 1)
	n.release()
	c.ended()
	n.m.View(func(v *fsm.View) {
		if st, _ := v.Tree.Exists("/a"); st.Version != 0 {
			t.Errorf("version %d", st.Version)
		}
	})
}

// TestSnapshotSendsClientsAway: of what happened between the old state and the new
// they learn by their watches, which they set again by the last zxid they saw. No
// reply that shows the new state goes out before.
func TestSnapshotSendsClientsAway(t *testing.T) {
	c, s, n := zkPipe(t)
	n.hold()
	c.send(zkSetReq("/a", "pending"))
	n.outstanding(1)
	s.hub.Restored(1_000, s.machine.Zxid())
	for {
		b, err := c.read()
		if err != nil {
			break
		}
		t.Errorf("reply %x", b)
	}
	eventually(t, "the connection is forgotten", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.dropped == 1 && len(s.hub.streams()) == 0
	})
	n.release()
}

// TestReadOnlyClientIsNotReported: such a client has no session
// that the leader could count.
func TestReadOnlyClientIsNotReported(t *testing.T) {
	s, n := fakeServer(t, func(cfg *Config) { cfg.ZooKeeper.ReadOnly = true })
	n.age = time.Hour
	c := zkDial(t, zkServe(t, s))
	c.hello(&wire.ConnectRequest{Timeout: 10 * time.Second, ReadOnly: true, HasReadOnly: true})
	if !c.welcome.ReadOnly || c.welcome.Session == 0 {
		t.Fatalf("%+v", c.welcome)
	}
	c.must(zkExistsReq("/"))
	if code, _ := c.call(zkCreateReq("/a", 0)); code != wire.NotReadOnly {
		t.Errorf("a write: %s", code)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.heard != 0 {
		t.Errorf("%d signs of life", n.heard)
	}
}
