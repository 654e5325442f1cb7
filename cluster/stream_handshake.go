package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A peer connection begins with one frame from each side:
//
//	magic "CRDP" | version (1 byte) | length (2 bytes, big endian) | body
//
// hello  = kind (1) | cluster | from | to
// answer = verdict (1) | cluster | id | reason
//
// where each text has a length before it (2 bytes). Nothing else is sent before
// the answer, so that a reader never takes bytes of what follows.
const (
	handshakeMagic    = "CRDP"
	handshakeVersion  = 1
	handshakeHeader   = len(handshakeMagic) + 1 + 2
	maxHandshakeBytes = 1024 // of a body
	maxReasonBytes    = 400
)

// connKind says what a peer connection carries.
type connKind uint8

const (
	connRaft connKind = 1 // messages of hashicorp/raft
	connRPC  connKind = 2 // gRPC among servers
)

func (k connKind) String() string {
	switch k {
	case connRaft:
		return "raft"
	case connRPC:
		return "rpc"
	default:
		return fmt.Sprintf("kind %d", uint8(k))
	}
}

var (
	// errHandshake is returned when the other side does not speak this protocol,
	// or not well.
	errHandshake = errors.New("not a peer handshake")
	// errPeerVersion is returned when the two programs speak other versions.
	errPeerVersion = errors.New("peer speaks another version")
	// errWrongCluster is returned when the two sides belong to two clusters.
	errWrongCluster = errors.New("peer belongs to another cluster")
	// errWrongPeer is returned when another server, or another incarnation of
	// it, answers at the address.
	errWrongPeer = errors.New("another server is at this address")
	// errNoCluster is returned when a side of a Raft connection does not belong
	// to a cluster yet.
	errNoCluster = errors.New("not yet part of a cluster")
	// errPeerBusy is returned when a bound on connections is reached.
	errPeerBusy = errors.New("peer has too many connections")
	// errNotAdmitted is returned when the other side does not want us.
	errNotAdmitted = errors.New("peer does not admit this server")
)

// verdict is the outcome of a handshake as it goes over the wire.
type verdict uint8

const (
	verdictOK verdict = iota
	verdictVersion
	verdictCluster
	verdictPeer
	verdictNoCluster
	verdictBusy
	verdictNotAdmitted
	verdictMalformed
)

// verdictErrors pairs each verdict with its meaning, both ways.
var verdictErrors = map[verdict]error{
	verdictVersion:     errPeerVersion,
	verdictCluster:     errWrongCluster,
	verdictPeer:        errWrongPeer,
	verdictNoCluster:   errNoCluster,
	verdictBusy:        errPeerBusy,
	verdictNotAdmitted: errNotAdmitted,
	verdictMalformed:   errHandshake,
}

func verdictOf(err error) verdict {
	for v, meaning := range verdictErrors {
		if errors.Is(err, meaning) {
			return v
		}
	}
	return verdictNotAdmitted
}

// refusedError is what the dialer gets when the other side refused. errors.Is
// finds the meaning (errWrongPeer and so on).
type refusedError struct {
	meaning error
	reason  string   // in the words of the other side
	server  serverID // who refused
	cluster string
}

func (e *refusedError) Error() string {
	who := string(e.server)
	if who == "" {
		who = "the peer"
	}
	return fmt.Sprintf("%s refused the connection: %v: %s", who, e.meaning, e.reason)
}

func (e *refusedError) Unwrap() error { return e.meaning }

// hello is what the dialer says. An empty text means "I do not know".
type hello struct {
	kind    connKind
	cluster string
	from    serverID // who dials
	to      serverID // who is believed to be at the address
}

// answer is what the acceptor says.
type answer struct {
	verdict verdict
	cluster string
	id      serverID
	reason  string
}

func (h hello) encode() []byte {
	return encodeFrame(byte(h.kind), h.cluster, string(h.from), string(h.to))
}

func (a answer) encode() []byte {
	reason := a.reason
	if len(reason) > maxReasonBytes {
		reason = reason[:maxReasonBytes]
	}
	return encodeFrame(byte(a.verdict), a.cluster, string(a.id), reason)
}

func encodeFrame(first byte, texts ...string) []byte {
	b := make([]byte, handshakeHeader, handshakeHeader+maxHandshakeBytes)
	copy(b, handshakeMagic)
	b[len(handshakeMagic)] = handshakeVersion
	b = append(b, first)
	for _, s := range texts {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	binary.BigEndian.PutUint16(b[handshakeHeader-2:], uint16(len(b)-handshakeHeader))
	return b
}

// readFrame reads one frame and returns its first byte and three texts. It
// reads no byte past the frame.
func readFrame(r io.Reader) (first byte, texts [3]string, err error) {
	var head [handshakeHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, texts, err
	}
	if string(head[:len(handshakeMagic)]) != handshakeMagic {
		return 0, texts, fmt.Errorf("%w: it begins with %q", errHandshake, head[:len(handshakeMagic)])
	}
	size := binary.BigEndian.Uint16(head[handshakeHeader-2:])
	if size > maxHandshakeBytes {
		return 0, texts, fmt.Errorf("%w: %d bytes, at most %d are allowed", errHandshake, size, maxHandshakeBytes)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, texts, err
	}
	if v := head[len(handshakeMagic)]; v != handshakeVersion {
		return 0, texts, fmt.Errorf("%w: %d, this program speaks %d", errPeerVersion, v, handshakeVersion)
	}
	return parseBody(body)
}

func parseBody(body []byte) (first byte, texts [3]string, err error) {
	if len(body) == 0 {
		return 0, texts, fmt.Errorf("%w: it is empty", errHandshake)
	}
	first, body = body[0], body[1:]
	for i := range texts {
		if len(body) < 2 {
			return 0, texts, fmt.Errorf("%w: it is cut short", errHandshake)
		}
		n := int(binary.BigEndian.Uint16(body))
		if body = body[2:]; len(body) < n {
			return 0, texts, fmt.Errorf("%w: it is cut short", errHandshake)
		}
		texts[i], body = string(body[:n]), body[n:]
	}
	if len(body) != 0 {
		return 0, texts, fmt.Errorf("%w: %d bytes too many", errHandshake, len(body))
	}
	return first, texts, nil
}

func readHello(r io.Reader) (hello, error) {
	first, texts, err := readFrame(r)
	if err != nil {
		return hello{}, err
	}
	h := hello{kind: connKind(first), cluster: texts[0], from: serverID(texts[1]), to: serverID(texts[2])}
	if h.kind != connRaft && h.kind != connRPC {
		return hello{}, fmt.Errorf("%w: %v is not known", errHandshake, h.kind)
	}
	if err := checkIDs(h.cluster, h.from, h.to); err != nil {
		return hello{}, err
	}
	return h, nil
}

func readAnswer(r io.Reader) (answer, error) {
	first, texts, err := readFrame(r)
	if err != nil {
		return answer{}, err
	}
	a := answer{verdict: verdict(first), cluster: texts[0], id: serverID(texts[1]), reason: texts[2]}
	if a.verdict > verdictMalformed {
		return answer{}, fmt.Errorf("%w: verdict %d is not known", errHandshake, a.verdict)
	}
	if len(a.reason) > maxReasonBytes {
		return answer{}, fmt.Errorf("%w: a reason of %d bytes", errHandshake, len(a.reason))
	}
	if err := checkIDs(a.cluster, a.id); err != nil {
		return answer{}, err
	}
	return a, nil
}

// checkIDs allows ids that are empty or well formed.
func checkIDs(cluster string, servers ...serverID) error {
	if cluster != "" {
		if err := validateClusterID(cluster); err != nil {
			return fmt.Errorf("%w: cluster %w", errHandshake, err)
		}
	}
	for _, s := range servers {
		if s == "" {
			continue
		}
		if _, err := parseServerID(string(s)); err != nil {
			return fmt.Errorf("%w: server %w", errHandshake, err)
		}
	}
	return nil
}

// judge decides on a well formed hello at the server self of cluster. It
// returns whether the caller is a guest, which may ask only to discover and to
// join: that is anybody who does not name both the cluster and this server.
func judge(h hello, self serverID, cluster string) (guest bool, err error) {
	if h.to != "" && h.to != self {
		return false, fmt.Errorf("%w: this is %s, not %s", errWrongPeer, self, h.to)
	}
	if h.cluster != "" && cluster != "" && h.cluster != cluster {
		return false, fmt.Errorf("%w: this one is %s, not %s", errWrongCluster, cluster, h.cluster)
	}
	known := h.cluster != "" && cluster != "" && h.from != "" && h.to != ""
	if h.kind == connRaft && !known {
		return false, fmt.Errorf("%w: a Raft connection needs the cluster and both servers", errNoCluster)
	}
	return !known, nil
}
