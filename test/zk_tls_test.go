package test

import (
	"crypto/tls"
	"slices"
	"testing"
	"time"

	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
)

// TestZooKeeperPortSpeaksTLS on the port itself; a certificate is an identity.
func TestZooKeeperPortSpeaksTLS(t *testing.T) {
	t.Parallel()
	s := startSecured(t, 1, "tls: {clients: verify-if-given}\n")
	host := s.nodes[0].zookeeper()
	plain := zkDial(t, host)
	plain.write((&wire.ConnectRequest{Timeout: 10 * time.Second}).Append(nil))
	plain.closed("plain text")

	open := func(cfg *tls.Config) *zkConn {
		t.Helper()
		nc, err := tls.Dial("tcp", host, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		c := &zkConn{t: t, net: nc, host: host}
		c.hello(&wire.ConnectRequest{Timeout: 10 * time.Second, HasReadOnly: true})
		return c
	}
	c := open(s.as("billing"))
	who := c.must(wire.Request{Op: wire.Op{Type: wire.WhoAmI}}).Clients
	if !slices.Contains(who, wire.ClientInfo{Scheme: "x509", User: "billing"}) {
		t.Errorf("identities: %v", who)
	}
	mine := zkCreate("/mine", "secret", 0)
	mine.ACL = []znode.ACL{{Perms: 31, Scheme: "x509", ID: "billing"}}
	c.must(mine)
	c.must(zkRead(wire.GetData, "/mine", false))
	open(s.as("")).wants(wire.NoAuth, zkRead(wire.GetData, "/mine", false))
	open(s.as("shipping")).wants(wire.NoAuth, zkRead(wire.GetData, "/mine", false))
	open(s.as(superuser)).must(zkRead(wire.GetData, "/mine", false))
	if nc, err := tls.Dial("tcp", host, &tls.Config{MinVersion: tls.VersionTLS12}); err == nil {
		nc.Close()
		t.Error("a server with an unknown certificate was trusted")
	}
}

// TestZooKeeperPortMayTakeBoth: plain text beside TLS only when it is asked for.
func TestZooKeeperPortMayTakeBoth(t *testing.T) {
	t.Parallel()
	s := startSecured(t, 1, "zookeeper: {plaintext: true}\n")
	host := s.nodes[0].zookeeper()
	zkOpen(t, host).dir()
	nc, err := tls.Dial("tcp", host, s.as(""))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c := &zkConn{t: t, net: nc, host: host}
	c.hello(&wire.ConnectRequest{Timeout: 10 * time.Second})
	c.dir()
}
