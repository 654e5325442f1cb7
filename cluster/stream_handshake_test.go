package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
)

const (
	idA      = serverID("n1~000000000000000a")
	idB      = serverID("n2~000000000000000b")
	idC      = serverID("n2~000000000000000c") // a later incarnation of n2
	clusterX = "0000000000000000000000000000000a"
	clusterY = "0000000000000000000000000000000b"
)

func TestHelloAndAnswerComeBackAsTheyWere(t *testing.T) {
	for _, h := range []hello{
		{kind: connRPC},
		{kind: connRaft, cluster: clusterX, from: idA, to: idB},
		{kind: connRPC, from: serverID(strings.Repeat("n", maxNameBytes) + "~000000000000000a")},
	} {
		r := bytes.NewReader(append(h.encode(), "what follows"...))
		if got, err := readHello(r); err != nil || got != h {
			t.Errorf("%+v became %+v, %v", h, got, err)
		}
		if rest, _ := io.ReadAll(r); string(rest) != "what follows" {
			t.Errorf("%q is left to read", rest)
		}
	}
	for _, a := range []answer{
		{verdict: verdictOK, cluster: clusterX, id: idA},
		{verdict: verdictPeer, id: idB, reason: strings.Repeat("r", maxReasonBytes)},
	} {
		if got, err := readAnswer(bytes.NewReader(a.encode())); err != nil || got != a {
			t.Errorf("%+v became %+v, %v", a, got, err)
		}
	}
	long := answer{verdict: verdictBusy, reason: strings.Repeat("r", 10*maxHandshakeBytes)}
	if got, err := readAnswer(bytes.NewReader(long.encode())); err != nil || len(got.reason) != maxReasonBytes {
		t.Errorf("a long reason: %d bytes, %v", len(got.reason), err)
	}
}

func TestBadHandshakesAreErrors(t *testing.T) {
	good := hello{kind: connRaft, cluster: clusterX, from: idA, to: idB}.encode()
	change := func(at int, b ...byte) []byte {
		c := bytes.Clone(good)
		copy(c[at:], b)
		return c
	}
	for name, tc := range map[string]struct {
		in   []byte
		want error
	}{
		"nothing":             {nil, io.EOF},
		"cut in the header":   {good[:3], io.ErrUnexpectedEOF},
		"cut in the body":     {good[:len(good)-1], io.ErrUnexpectedEOF},
		"HTTP":                {[]byte("GET / HTTP/1.1\r\n\r\n"), errHandshake},
		"TLS":                 {[]byte{22, 3, 1, 2, 0, 1, 0, 1, 252}, errHandshake},
		"another version":     {change(4, 9), errPeerVersion},
		"huge":                {change(5, 0xff, 0xff), errHandshake},
		"empty body":          {change(5, 0, 0)[:handshakeHeader], errHandshake},
		"unknown kind":        {change(7, 77), errHandshake},
		"text over the end":   {change(8, 0x03, 0xff), errHandshake},
		"bytes too many":      {withLength(append(bytes.Clone(good), 0)), errHandshake},
		"cluster is no id":    {hello{kind: connRPC, cluster: "default"}.encode(), errBadClusterID},
		"server is no id":     {hello{kind: connRPC, from: "n1"}.encode(), errBadServerID},
		"the other is no id":  {hello{kind: connRPC, to: "n1~"}.encode(), errBadServerID},
		"texts are cut short": {withLength(bytes.Clone(good[:handshakeHeader+2])), errHandshake},
	} {
		if h, err := readHello(bytes.NewReader(tc.in)); !errors.Is(err, tc.want) {
			t.Errorf("%s: %+v, %v; want %v", name, h, err, tc.want)
		}
	}
	for name, a := range map[string]answer{
		"unknown verdict": {verdict: 99}, "cluster is no id": {cluster: "x"}, "server is no id": {id: "x"},
	} {
		if _, err := readAnswer(bytes.NewReader(a.encode())); !errors.Is(err, errHandshake) {
			t.Errorf("answer with %s: %v", name, err)
		}
	}
}

// withLength puts the true length of a frame into it.
func withLength(frame []byte) []byte {
	binary.BigEndian.PutUint16(frame[handshakeHeader-2:], uint16(len(frame)-handshakeHeader))
	return frame
}

func TestWhoIsLetInAndAsWhat(t *testing.T) {
	for _, tc := range []struct {
		name    string
		h       hello
		cluster string // ours; we are B
		guest   bool
		want    error
	}{
		{"a member, Raft", hello{connRaft, clusterX, idA, idB}, clusterX, false, nil},
		{"a member, RPC", hello{connRPC, clusterX, idA, idB}, clusterX, false, nil},
		{"nobody", hello{kind: connRPC}, clusterX, true, nil},
		{"one that wants to join", hello{connRPC, "", idA, ""}, clusterX, true, nil},
		{"a member that does not know us", hello{connRPC, clusterX, idA, ""}, clusterX, true, nil},
		{"one that knows us but no cluster", hello{connRPC, "", idA, idB}, clusterX, true, nil},
		{"a member, and we have no cluster yet", hello{connRPC, clusterX, idA, idB}, "", true, nil},
		{"nobody in particular of our cluster", hello{connRPC, clusterX, "", idB}, clusterX, true, nil},
		{"it looks for another server", hello{connRPC, clusterX, idB, idA}, clusterX, false, errWrongPeer},
		{"it looks for our later incarnation", hello{connRaft, clusterX, idA, idC}, clusterX, false, errWrongPeer},
		{"it is of another cluster", hello{connRPC, clusterY, idA, idB}, clusterX, false, errWrongCluster},
		{"Raft of another cluster", hello{connRaft, clusterY, idA, idB}, clusterX, false, errWrongCluster},
		{"Raft without a cluster", hello{connRaft, "", idA, idB}, clusterX, false, errNoCluster},
		{"Raft without us", hello{connRaft, clusterX, idA, ""}, clusterX, false, errNoCluster},
		{"Raft from nobody", hello{connRaft, clusterX, "", idB}, clusterX, false, errNoCluster},
		{"Raft, and we have no cluster yet", hello{connRaft, clusterX, idA, idB}, "", false, errNoCluster},
	} {
		guest, err := judge(tc.h, idB, tc.cluster)
		if guest != tc.guest || !errors.Is(err, tc.want) || (err != nil) != (tc.want != nil) {
			t.Errorf("%s: guest %v, %v; want %v, %v", tc.name, guest, err, tc.guest, tc.want)
		}
		if err != nil && !errors.Is(verdictErrors[verdictOf(err)], tc.want) {
			t.Errorf("%s: %v goes over the wire as %v", tc.name, err, verdictErrors[verdictOf(err)])
		}
	}
}

// The dialer does not trust the verdict alone.
func TestAnswerOfTheWrongServerIsRefusedEvenIfItAccepts(t *testing.T) {
	to := hello{connRaft, clusterX, idA, idB}
	for _, tc := range []struct {
		a    answer
		h    hello
		want error
	}{
		{answer{cluster: clusterX, id: idB}, to, nil},
		{answer{cluster: clusterX, id: idC}, to, errWrongPeer},
		{answer{cluster: clusterX}, to, errWrongPeer},
		{answer{cluster: clusterX}, hello{kind: connRPC}, errWrongPeer},
		{answer{cluster: clusterY, id: idB}, to, errWrongCluster},
		{answer{id: idB}, to, errNoCluster},
		{answer{id: idB}, hello{connRPC, clusterX, idA, idB}, nil},
		{answer{verdict: verdictBusy, id: idB}, to, errPeerBusy},
	} {
		if err := checkAnswer(tc.a, tc.h); !errors.Is(err, tc.want) || (err != nil) != (tc.want != nil) {
			t.Errorf("%+v for %+v: %v, want %v", tc.a, tc.h, err, tc.want)
		}
	}
}

func TestEveryVerdictHasItsMeaning(t *testing.T) {
	for v := verdictVersion; v <= verdictMalformed; v++ {
		meaning := verdictErrors[v]
		if meaning == nil || verdictOf(meaning) != v {
			t.Errorf("verdict %d means %v, which is verdict %d", v, meaning, verdictOf(meaning))
		}
		err := checkAnswer(answer{verdict: v, id: idB, reason: "so it is"}, hello{kind: connRPC})
		if !errors.Is(err, meaning) || !strings.Contains(err.Error(), "so it is") || !strings.Contains(err.Error(), string(idB)) {
			t.Errorf("verdict %d gives %v", v, err)
		}
	}
}

func FuzzHandshake(f *testing.F) {
	f.Add(hello{kind: connRaft, cluster: clusterX, from: idA, to: idB}.encode())
	f.Add(hello{kind: connRPC}.encode())
	f.Add(answer{verdict: verdictPeer, cluster: clusterX, id: idA, reason: "no"}.encode())
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		if h, err := readHello(r); err == nil {
			if used := in[:len(in)-r.Len()]; !bytes.Equal(h.encode(), used) {
				t.Errorf("%q is read as %+v, which is written as %q", used, h, h.encode())
			}
			if guest, err := judge(h, idB, clusterX); err == nil && !guest && (h.to != idB || h.cluster != clusterX || h.from == "") {
				t.Errorf("%+v is let in as a member", h)
			}
		}
		r = bytes.NewReader(in)
		if a, err := readAnswer(r); err == nil {
			if used := in[:len(in)-r.Len()]; !bytes.Equal(a.encode(), used) {
				t.Errorf("%q is read as %+v, which is written as %q", used, a, a.encode())
			}
		}
	})
}
