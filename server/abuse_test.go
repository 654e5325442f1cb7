package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
)

// raw opens a session stream whose answers are read only when the test asks.
func (r *running) raw() coordpb.Coord_SessionClient {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.t.Cleanup(cancel)
	stream, err := coordpb.NewCoordClient(r.dial()).Session(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := stream.Send(&coordpb.SessionRequest{Hello: &coordpb.Hello{Mode: coordpb.Hello_MODE_OPEN, Nonce: nonce()}}); err != nil {
		r.t.Fatal(err)
	}
	m, err := stream.Recv()
	if err != nil || m.GetWelcome().GetError() != nil {
		r.t.Fatal(m, err)
	}
	return stream
}

// TestTooManyRequestsAreHeldBack: a client that sends thirty times what may be
// unanswered, and reads nothing meanwhile, gets every answer in order.
func TestTooManyRequestsAreHeldBack(t *testing.T) {
	t.Parallel()
	n := uint64(3_000)
	if testing.Short() {
		n = 1_500
	}
	cfg := oneServer(t)
	cfg.Limits.RequestsInFlight = 100
	r := start(t, cfg)
	stream := r.raw()
	path := "/" + strings.Repeat("x", 1000)
	sent := make(chan error, 1)
	go func() {
		for seq := uint64(1); seq <= n; seq++ {
			// As a client does: it has seen nothing, so it acknowledges nothing
			// but what lies further back than it may have outstanding.
			ack := uint64(0)
			if seq > 1000 {
				ack = seq - 1000
			}
			req := &coordpb.Request{Seq: seq, Write: &coordpb.Write{Ops: []*coordpb.Op{create(fmt.Sprint(path, seq), "")}}}
			if err := stream.Send(&coordpb.SessionRequest{Requests: []*coordpb.Request{req}, Ack: ack}); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	eventually(t, "the stream is full", func() bool {
		for _, c := range r.hub.streams() {
			return c.(*conn).unsent.Load() >= 90
		}
		return false
	})
	next := uint64(1)
	for next <= n {
		m, err := stream.Recv()
		if err != nil {
			t.Fatalf("after %d answers: %v", next-1, err)
		}
		if m.GetGoodbye() != nil {
			t.Fatalf("after %d answers: %v", next-1, m.GetGoodbye())
		}
		for _, reply := range m.GetReplies() {
			if reply.GetSeq() != next || reply.GetError() != nil {
				t.Fatalf("answer %v, want number %d", reply, next)
			}
			next++
		}
		for _, c := range r.hub.streams() {
			if u := c.(*conn).unsent.Load(); u > 100 {
				t.Fatalf("%d requests in flight", u)
			}
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

func TestClientThatNeverAcknowledgesIsEnded(t *testing.T) {
	cfg := oneServer(t)
	cfg.Limits.RequestsInFlight = 50
	r := start(t, cfg)
	c := r.open()
	for range 1024 {
		c.offer(set("/", ""))
	}
	c.answer(1024)
	for range 50 { // these wait for an acknowledgement
		c.offer(set("/", ""))
	}
	c.acked = 1024
	c.send()
	c.answer(1074)
	c.acked = 0
	defer func() { recover() }()
	for range 1024 + 200 {
		c.seq++
		req := &coordpb.Request{Seq: c.seq, Write: &coordpb.Write{Ops: []*coordpb.Op{set("/", "")}}}
		if c.stream.Send(&coordpb.SessionRequest{Requests: []*coordpb.Request{req}}) != nil {
			break
		}
	}
	e := c.end()
	wantCode(t, e, coordpb.Code_CODE_LIMIT)
	if e.GetLimit() != settingInFlight {
		t.Errorf("goodbye %v", e)
	}
}

// TestSlowConsumerLosesItsStreamAndNoEvents: who does not read is cut off with a
// reason, costs a bounded amount of memory, harms nobody, and can resume.
func TestSlowConsumerLosesItsStreamAndNoEvents(t *testing.T) {
	t.Parallel()
	cfg := oneServer(t)
	cfg.Limits.QueueBytes = 1 << 20
	r := start(t, cfg)
	w := r.open()
	first := w.must(create("/s", "")).GetZxid()
	slow := r.raw()
	if err := slow.Send(&coordpb.SessionRequest{Requests: []*coordpb.Request{{Id: 1, Watch: &coordpb.Watch{Path: "/s", Kind: coordpb.Watch_KIND_NODE, WithData: true}}}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the watch is set", func() bool { return r.hub.watchCount() == 1 })
	data := strings.Repeat("x", 100_000)
	var last uint64
	for range 60 { // 6 MB: more than windows and queue take
		last = w.must(set("/s", data)).GetZxid()
		w.acked = w.seq
	}
	eventually(t, "the slow stream is gone", func() bool { return r.hub.slow.Load() == 1 && r.hub.watchCount() == 0 })
	f := &follower{pos: first}
	c := r.hello(&coordpb.Hello{Mode: coordpb.Hello_MODE_NONE})
	c.watch(&coordpb.Watch{Path: "/s", Kind: coordpb.Watch_KIND_NODE, Since: first})
	c.wait("all changes", func() bool { return len(c.events) == 60 })
	for _, e := range c.seen() {
		f.event(e)
	}
	if f.zxid != last || len(f.changes) != 60 {
		t.Errorf("resumed up to %x with %d changes, want %x with 60", f.zxid, len(f.changes), last)
	}
	// With the data it is more than fits in one go: then it is one resync.
	c.watch(&coordpb.Watch{Path: "/s", Kind: coordpb.Watch_KIND_NODE, WithData: true, Since: first})
	c.wait("resync", func() bool {
		return len(c.events) == 61 && c.events[60].GetType() == coordpb.EventType_EVENT_RESYNC
	})
}

// TestGreedyReaderIsServedSlowly: reads whose answers are more than the queue
// takes wait; they are neither dropped nor do they end the stream.
func TestGreedyReaderIsServedSlowly(t *testing.T) {
	cfg := oneServer(t)
	cfg.Limits.QueueBytes = 1 << 20
	r := start(t, cfg)
	c := r.open()
	c.must(create("/big", strings.Repeat("x", 1_000_000)))
	for _, mode := range []coordpb.ReadMode{coordpb.ReadMode_READ_MODE_SESSION, coordpb.ReadMode_READ_MODE_LINEARIZABLE} {
		var ids []uint64
		for range 40 {
			read := get("/big")
			read.Mode = mode
			ids = append(ids, c.ask(&coordpb.Request{Read: read}))
		}
		for _, id := range ids {
			if got := c.answer(id | plain); len(got.GetRead().GetData()) != 1_000_000 {
				t.Fatalf("%s: %v", mode, got.GetError())
			}
		}
	}
}

func TestMalformedRequestsEndTheirStreamOnly(t *testing.T) {
	r := start(t, oneServer(t))
	bystander := r.open()
	write := &coordpb.Write{Ops: []*coordpb.Op{set("/", "")}}
	for name, rs := range map[string][]*coordpb.Request{
		"nothing":          {{Id: 1}},
		"two things":       {{Seq: 1, Write: write, Close: true}},
		"read with number": {{Seq: 1, Read: get("/")}},
		"write with id":    {{Id: 1, Seq: 1, Write: write}},
		"write without":    {{Write: write}},
		"hole":             {{Seq: 3, Write: write}},
		"hole behind":      {{Seq: 1, Write: write}, {Seq: 3, Write: write}},
	} {
		t.Run(name, func(t *testing.T) {
			c := r.open()
			c.send(rs...)
			wantCode(t, c.end(), coordpb.Code_CODE_MALFORMED)
		})
	}
	t.Run("second hello", func(t *testing.T) {
		c := r.open()
		if err := c.stream.Send(&coordpb.SessionRequest{Hello: &coordpb.Hello{}}); err != nil {
			t.Fatal(err)
		}
		wantCode(t, c.end(), coordpb.Code_CODE_MALFORMED)
	})
	t.Run("refused but not ended", func(t *testing.T) {
		c := r.open()
		for _, req := range []*coordpb.Request{
			{Read: &coordpb.Read{}},
			{Read: &coordpb.Read{Kind: 99, Path: "/"}},
			{Read: &coordpb.Read{Kind: coordpb.Read_KIND_GET, Path: "/", Mode: 9}},
			{Read: &coordpb.Read{Kind: coordpb.Read_KIND_CHILDREN, Path: "/", Limit: -1}},
			{Read: &coordpb.Read{Kind: coordpb.Read_KIND_WALK, Path: "/", WatchId: 3}},
			{Watch: &coordpb.Watch{Path: "/", Kind: 77}},
		} {
			wantCode(t, c.answer(c.ask(req)|plain).GetError(), coordpb.Code_CODE_MALFORMED)
		}
		wantCode(t, c.read(get("no/slash")).GetError(), coordpb.Code_CODE_BAD_PATH)
		c.must(create("/fine", ""))
	})
	bystander.must(create("/unharmed", ""))
}

func TestOversizedTransactionIsRefusedAndOversizedFrameEndsItsStream(t *testing.T) {
	r := start(t, oneServer(t))
	bystander, c := r.open(), r.open()
	var ops []*coordpb.Op
	for i := range 5 {
		ops = append(ops, create(fmt.Sprint("/", i), strings.Repeat("x", 1<<20)))
	}
	e := c.write(ops...).GetError()
	wantCode(t, e, coordpb.Code_CODE_TOO_LARGE)
	if e.GetLimit() != settingFrame {
		t.Errorf("refusal %v", e)
	}
	c.must(create("/next", ""))
	c.offer(append(ops, ops...)...)
	c.end()
	if status.Code(c.endErr) != codes.ResourceExhausted {
		t.Errorf("the stream ended with %v", c.endErr)
	}
	_, err := r.coord().Write(t.Context(), &coordpb.WriteRequest{RequestId: strings.Repeat("x", 9<<20)})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("oversized call: %v", err)
	}
	bystander.must(create("/unharmed", ""))
	// The session is alive, and the number was never used.
	c = r.attach(c, 2)
	c.must(create("/b", ""))
}

// TestGarbageIsClosed sends bytes that are no HTTP/2 and no HTTP to the ports.
func TestGarbageIsClosed(t *testing.T) {
	r := start(t, oneServer(t))
	c := r.open()
	noise := make([]byte, 64<<10)
	rand.Read(noise)
	preface := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	settings := []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}
	for name, b := range map[string][]byte{
		"noise":           noise,
		"preface, noise":  append(append(bytes.Clone(preface), settings...), noise...),
		"half a preface":  preface[:10],
		"huge frame":      append(append(bytes.Clone(preface), settings...), 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1),
		"http/1 request":  []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"endless header":  append([]byte("GET /livez HTTP/1.1\r\nX: "), bytes.Repeat([]byte("y"), 1<<20)...),
		"zookeeper hello": {0, 0, 0, 44, 0, 0, 0, 0},
	} {
		for _, addr := range []net.Addr{r.Addrs().GRPC, r.Addrs().HTTP} {
			t.Run(name, func(t *testing.T) {
				conn, err := net.Dial("tcp", addr.String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
				conn.Write(b)                   // an error is an answer too
				conn.Read(make([]byte, 64<<10)) // whatever it says
			})
		}
	}
	c.must(create("/unharmed", ""))
	eventually(t, "only the client's connection is left", func() bool { return r.grpcListener.count() <= 1 })
}

// TestSilentConnectionsHarmNobody: connections that say nothing cost little and
// are closed in the end.
func TestSilentConnectionsHarmNobody(t *testing.T) {
	n := min(10_000, maxSockets()/2-500)
	if testing.Short() {
		n = min(n, 1_000)
	}
	r := start(t, oneServer(t))
	c := r.open()
	before := heapInUse()
	var conns []net.Conn
	defer func() {
		for _, conn := range conns {
			conn.Close()
		}
	}()
	for i := range n {
		conn, err := net.Dial("tcp", r.Addrs().GRPC.String())
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, conn)
		if i%1000 == 0 {
			begin := time.Now()
			c.must(set("/", fmt.Sprint(i)))
			if took := time.Since(begin); took > 2*time.Second {
				t.Errorf("with %d silent connections a write took %s", i, took)
			}
		}
	}
	eventually(t, "all are accepted", func() bool { return r.grpcListener.count() == n+1 })
	if grown := heapInUse() - before; grown > int64(n)*(64<<10) {
		t.Errorf("%d silent connections take %d bytes each", n, grown/int64(n))
	}
	c.must(create("/unharmed", ""))
}

// maxSockets is how many files this process may have open.
func maxSockets() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 2000
	}
	return int(min(l.Cur, 1<<20))
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
