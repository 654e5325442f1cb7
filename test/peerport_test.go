package test

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/internal/testcerts"
)

// The verdicts of a server on who wants to be its peer, as they go over the wire.
const (
	peerWelcome      = 0
	peerWrongCluster = 2
	peerWrongServer  = 3
	peerNoCluster    = 4
	peerNotAdmitted  = 6
)

// The kinds of peer connections.
const (
	peerRaft = 1
	peerRPC  = 2
)

// peerHello is the first frame of a peer connection: who calls, and whom.
func peerHello(kind byte, cluster, from, to string) []byte {
	body := []byte{kind}
	for _, text := range []string{cluster, from, to} {
		body = binary.BigEndian.AppendUint16(body, uint16(len(text)))
		body = append(body, text...)
	}
	return append(binary.BigEndian.AppendUint16([]byte("CRDP\x01"), uint16(len(body))), body...)
}

// greetPeer says hello at a peer port and returns the verdict and its reason.
func greetPeer(address string, cfg *tls.Config, hello []byte) (verdict byte, reason string, err error) {
	conn, err := tls.Dial("tcp", address, cfg)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	return exchangeHello(conn, hello)
}

func exchangeHello(conn net.Conn, hello []byte) (verdict byte, reason string, err error) {
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return 0, "", err
	}
	if _, err := conn.Write(hello); err != nil {
		return 0, "", err
	}
	header := make([]byte, 7)
	if _, err := io.ReadFull(conn, header); err != nil {
		return 0, "", err
	}
	body := make([]byte, binary.BigEndian.Uint16(header[5:]))
	if _, err := io.ReadFull(conn, body); err != nil {
		return 0, "", err
	}
	verdict, body = body[0], body[1:]
	for range 3 { // cluster, server, reason
		n := binary.BigEndian.Uint16(body)
		reason, body = string(body[2:2+n]), body[2+n:]
	}
	return verdict, reason, conn.SetDeadline(time.Time{})
}

// peersAreChecked calls a server as one that has all the right papers, and then
// with one thing wrong at a time.
func (s *secured) peersAreChecked(t *testing.T) {
	p := s.nodes[1]
	st, err := p.status()
	if err != nil {
		t.Fatal(err)
	}
	address, me := p.ports()["peer"], "n1~00000000000000aa"
	asServer, asClient := s.showing(s.ca.Pair(t, "n1", testcerts.Both)), s.as(superuser)
	other := strings.Repeat("0", 31) + "1"
	for name, tc := range map[string]struct {
		cfg     *tls.Config
		hello   []byte
		verdict byte
		reason  string
	}{
		"all is right":            {asServer, peerHello(peerRPC, st.ClusterId, me, st.ServerId), peerWelcome, ""},
		"another server":          {asServer, peerHello(peerRPC, st.ClusterId, me, "n3~00000000000000bb"), peerWrongServer, "this is " + st.ServerId},
		"an earlier incarnation":  {asServer, peerHello(peerRaft, st.ClusterId, me, "n2~00000000000000bb"), peerWrongServer, "this is " + st.ServerId},
		"another cluster":         {asServer, peerHello(peerRPC, other, me, st.ServerId), peerWrongCluster, st.ClusterId + ", not " + other},
		"Raft of another cluster": {asServer, peerHello(peerRaft, other, me, st.ServerId), peerWrongCluster, st.ClusterId + ", not " + other},
		"Raft of nobody":          {asServer, peerHello(peerRaft, "", "", ""), peerNoCluster, "needs the cluster and both servers"},
		"a client":                {asClient, peerHello(peerRPC, st.ClusterId, me, st.ServerId), peerNotAdmitted, `"root" is a client's`},
		"Raft of a client":        {asClient, peerHello(peerRaft, st.ClusterId, me, st.ServerId), peerNotAdmitted, "serverAuth"},
		"a client that asks":      {asClient, peerHello(peerRPC, "", "", ""), peerNotAdmitted, "serverAuth"},
	} {
		verdict, reason, err := greetPeer(address, tc.cfg, tc.hello)
		if err != nil || verdict != tc.verdict || !strings.Contains(reason, tc.reason) {
			t.Errorf("%s: verdict %d %q, %v; want %d %q", name, verdict, reason, err, tc.verdict, tc.reason)
		}
	}
	if _, _, err := greetPeer(address, asServer, []byte(fmt.Sprintf("%1024s", "noise"))); err == nil {
		t.Error("noise is answered")
	}
}

// strangerCannotJoin wipes a follower and starts it anew: with certificates of
// another authority, then as a server of another cluster, and then as it should
// be.
func (s *secured) strangerCannotJoin(t *testing.T) {
	p := s.follower()
	members := func() []string {
		st, err := s.leader().status()
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, m := range st.GetMembers() {
			ids = append(ids, m.GetId())
		}
		return ids
	}
	before := members()
	env := slices.Clone(p.extraEnv)
	foreign := testcerts.In(t.TempDir())
	testcerts.New(t, "second authority").Write(t, foreign, p.name, testcerts.Both)
	for _, tc := range []struct {
		env  []string
		want string
	}{
		{tlsEnv(foreign), "certificate"},
		{[]string{"COORDD_CLUSTER_NAME=other"}, "this cluster is called test, not other"},
	} {
		p.kill()
		logged := p.logSize(t)
		if err := os.RemoveAll(p.dataDir()); err != nil {
			t.Fatal(err)
		}
		p.extraEnv = append(slices.Clone(env), tc.env...)
		p.start()
		poll(t, 20*time.Second, "the reason why it is not taken in", func() error {
			for line := range strings.Lines(p.logSince(t, logged)) {
				if strings.Contains(line, "not formed: waiting") && strings.Contains(line, tc.want) {
					return nil
				}
			}
			return errors.New("not in the log")
		})
		if got := members(); !slices.Equal(got, before) {
			t.Errorf("%v: the members are %v, were %v", tc.env, got, before)
		}
	}
	p.kill()
	p.extraEnv = env
	p.start()
	poll(t, 30*time.Second, "it joins as it should be", func() error {
		if got := members(); slices.ContainsFunc(got, func(id string) bool {
			return strings.HasPrefix(id, p.name+"~") && !slices.Contains(before, id)
		}) {
			return nil
		}
		return errors.New("not a member")
	})
}

func (p *process) logSize(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(p.log())
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func (p *process) logSince(t *testing.T, offset int64) string {
	t.Helper()
	text, err := os.ReadFile(p.log())
	if err != nil {
		t.Fatal(err)
	}
	return string(text[offset:])
}
