package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/session"
)

// TestRefusedWriteUsesItsNumber: what is refused before the log takes its
// number all the same, or everything behind it would be stuck for ever.
func TestRefusedWriteUsesItsNumber(t *testing.T) {
	cfg := oneServer(t)
	cfg.Limits = Limits{NodeBytes: 1000, PathBytes: 100, OpsPerMulti: 3}
	r := start(t, cfg)
	c := r.open()
	many := []*coordpb.Op{create("/1", ""), create("/2", ""), create("/3", ""), create("/4", "")}
	ttl := create("/t", "")
	ttl.Node = coordpb.NodeKind_NODE_KIND_TTL
	timed := func(op *coordpb.Op, ttl, linger int64) []*coordpb.Op {
		op.Node, op.TtlMs, op.LingerMs = coordpb.NodeKind_NODE_KIND_EPHEMERAL, ttl, linger
		return []*coordpb.Op{op}
	}
	for _, bad := range []struct {
		name  string
		ops   []*coordpb.Op
		code  coordpb.Code
		limit string
		index int32
	}{
		{"data", []*coordpb.Op{create("/a", strings.Repeat("x", 1001))}, coordpb.Code_CODE_TOO_LARGE, settingNode, 0},
		{"second op", []*coordpb.Op{create("/a", ""), create("/b", strings.Repeat("x", 1001))}, coordpb.Code_CODE_TOO_LARGE, settingNode, 1},
		{"path", []*coordpb.Op{create("/"+strings.Repeat("x", 100), "")}, coordpb.Code_CODE_TOO_LARGE, settingPath, 0},
		{"ops", many, coordpb.Code_CODE_LIMIT, settingOps, 0},
		{"no slash", []*coordpb.Op{create("a", "")}, coordpb.Code_CODE_BAD_PATH, "", 0},
		{"dots", []*coordpb.Op{create("/a", ""), set("/a/../b", "")}, coordpb.Code_CODE_BAD_PATH, "", 1},
		{"no op", nil, coordpb.Code_CODE_BAD_ARGUMENTS, "", 0},
		{"no kind", []*coordpb.Op{{Path: "/a"}}, coordpb.Code_CODE_BAD_ARGUMENTS, "", 0},
		{"strange kind", []*coordpb.Op{{Kind: 77, Path: "/a"}}, coordpb.Code_CODE_BAD_ARGUMENTS, "", 0},
		{"strange node", []*coordpb.Op{{Kind: coordpb.Op_KIND_CREATE, Path: "/a", Node: 77}}, coordpb.Code_CODE_BAD_ARGUMENTS, "", 0},
		{"ttl without time", []*coordpb.Op{ttl}, coordpb.Code_CODE_BAD_ARGUMENTS, "", 0},
		{"ttl too long", timed(create("/a", ""), 1<<40, 0), coordpb.Code_CODE_BAD_ARGUMENTS, "", 0},
		{"ttl below zero", timed(create("/a", ""), -1, 0), coordpb.Code_CODE_BAD_ARGUMENTS, "", 0},
		{"linger too long", timed(create("/a", ""), 0, 3_600_001), coordpb.Code_CODE_BAD_ARGUMENTS, "", 0},
		{"linger below zero", timed(create("/a", ""), 0, -1), coordpb.Code_CODE_BAD_ARGUMENTS, "", 0},
		{"set of a ttl", timed(set("/", ""), 1000, 0), coordpb.Code_CODE_BAD_ARGUMENTS, "", 0},
		{"ttl taken too often", timed(set("/", ""), -2, 0), coordpb.Code_CODE_BAD_ARGUMENTS, "", 0},
		{"linger of the root", timed(set("/", ""), 0, 1000), coordpb.Code_CODE_BAD_ARGUMENTS, "", 0},
		{"linger of what is none", timed(set("/", ""), 0, 1<<62), coordpb.Code_CODE_BAD_ARGUMENTS, "", 0},
	} {
		t.Run(bad.name, func(t *testing.T) {
			refused, next := c.offer(bad.ops...), c.offer(create(fmt.Sprintf("/ok-%s", strings.ReplaceAll(bad.name, " ", "-")), ""))
			e := c.answer(refused).GetError()
			wantCode(t, e, bad.code)
			if e.GetLimit() != bad.limit || e.GetOpIndex() != bad.index || e.GetMessage() == "" {
				t.Errorf("refusal %v", e)
			}
			if bad.limit != "" && (e.GetHave() <= e.GetWant() || !strings.Contains(e.GetMessage(), bad.limit)) {
				t.Errorf("refusal %v does not say the bound and how to raise it", e)
			}
			wantCode(t, c.answer(next).GetError(), coordpb.Code_CODE_OK)
		})
	}
	// After a move the answer is remembered like any other.
	moved := r.attach(c, 2)
	moved.seq = 0
	wantCode(t, moved.write(create("/a", strings.Repeat("x", 1001))).GetError(), coordpb.Code_CODE_TOO_LARGE)
}

func TestCancelledWriteIsCertain(t *testing.T) {
	r := start(t, oneServer(t))
	c := r.open()
	done := c.must(create("/a", "")) // number 1
	c.seq++
	c.send(&coordpb.Request{Seq: c.seq, Skip: &coordpb.Skip{Code: coordpb.Code_CODE_CANCELLED}})
	wantCode(t, c.answer(c.seq).GetError(), coordpb.Code_CODE_CANCELLED)
	moved := r.attach(c, 2)
	moved.send(&coordpb.Request{Seq: 1, Skip: &coordpb.Skip{Code: coordpb.Code_CODE_OK}})
	if got := moved.answer(1); got.GetError() != nil || got.GetZxid() != done.GetZxid() {
		t.Errorf("a skip of a write that was done must give its answer: %v", got)
	}
}

// TestSkipBehindItsWriteGivesOneAnswer: the write and the skip that withdraws it
// may both be under way on one stream.
func TestSkipBehindItsWriteGivesOneAnswer(t *testing.T) {
	r := start(t, oneServer(t))
	c := r.open()
	for range 200 {
		c.seq++
		c.send(&coordpb.Request{Seq: c.seq, Write: &coordpb.Write{Ops: []*coordpb.Op{create(fmt.Sprint("/n", c.seq), "")}}},
			&coordpb.Request{Seq: c.seq, Skip: &coordpb.Skip{}})
		switch e := c.answer(c.seq).GetError(); e.GetCode() {
		case coordpb.Code_CODE_OK, coordpb.Code_CODE_CANCELLED:
		default:
			t.Fatalf("answer %v", e)
		}
		c.acked = c.seq
	}
	c.must(create("/last", ""))
}

func TestWatchesPerSessionAreBounded(t *testing.T) {
	cfg := oneServer(t)
	cfg.Limits.WatchesPerSession = 2
	r := start(t, cfg)
	c := r.open()
	for range 2 {
		if _, reply := c.watch(&coordpb.Watch{Path: "/a", Kind: coordpb.Watch_KIND_NODE}); reply.GetError() != nil {
			t.Fatal(reply)
		}
	}
	_, reply := c.watch(&coordpb.Watch{Path: "/a", Kind: coordpb.Watch_KIND_NODE})
	wantCode(t, reply.GetError(), coordpb.Code_CODE_LIMIT)
	if reply.GetError().GetLimit() != settingWatches {
		t.Errorf("refusal %v", reply.GetError())
	}
	read := &coordpb.Read{Kind: coordpb.Read_KIND_EXISTS, Path: "/", WatchId: 99}
	wantCode(t, c.read(read).GetError(), coordpb.Code_CODE_LIMIT)
	c.send(&coordpb.Request{Id: 1, Unwatch: true})
	wantCode(t, c.read(read).GetError(), coordpb.Code_CODE_OK)
}

func TestSessionsAreBounded(t *testing.T) {
	for setting, limits := range map[string]Limits{settingSessions: {Sessions: 2}, settingAddress: {SessionsPerAddress: 2}} {
		t.Run(setting, func(t *testing.T) {
			cfg := oneServer(t)
			cfg.Limits = limits
			r := start(t, cfg)
			first, second := r.open(), r.open()
			w := r.hello(&coordpb.Hello{Mode: coordpb.Hello_MODE_OPEN, Nonce: nonce()}).welcome
			wantCode(t, w.GetError(), coordpb.Code_CODE_LIMIT)
			if w.GetError().GetLimit() != setting {
				t.Errorf("refusal %v", w.GetError())
			}
			r.open(func(h *coordpb.Hello) { h.Nonce = first.nonce }) // a repeat opens nothing
			second.seq++
			second.send(&coordpb.Request{Seq: second.seq, Close: true})
			second.end()
			r.open()
		})
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	cfg := oneServer(t)
	cfg.Limits.ConnectionsPerAddress = 3
	r := start(t, cfg)
	r.open()
	var conns []net.Conn
	for range 4 {
		c, err := net.Dial("tcp", r.Addrs().GRPC.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	// The gRPC connection and two of these have a place.
	closed := 0
	for _, c := range conns {
		c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1024)); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				closed++
			}
		}
	}
	if closed != 2 || r.grpcListener.refused.Load() != 2 {
		t.Errorf("%d of 4 connections closed, %d refused, want 2", closed, r.grpcListener.refused.Load())
	}
	for _, c := range conns {
		c.Close()
	}
	eventually(t, "their places are free", func() bool { return r.grpcListener.count() == 1 })
}

func TestWritesPerSecondHoldBackAndNeverFail(t *testing.T) {
	t.Parallel()
	cfg := oneServer(t)
	cfg.Limits.WritesPerSecond = 200
	r := start(t, cfg)
	c := r.open()
	begin := time.Now()
	for i := range 100 {
		c.offer(create(fmt.Sprint("/", i), ""))
	}
	for seq := uint64(1); seq <= c.seq; seq++ {
		wantCode(t, c.answer(seq).GetError(), coordpb.Code_CODE_OK)
	}
	// 20 at once, the other 80 at 200 a second.
	if took := time.Since(begin); took < 300*time.Millisecond {
		t.Errorf("100 writes took %s at 200 a second", took)
	}
}

func TestUnaryCallsInFlightAreBounded(t *testing.T) {
	cfg := oneServer(t)
	cfg.Limits.UnaryInFlight = 1
	r := start(t, cfg)
	release, err := r.enterUnary()
	if err != nil {
		t.Fatal(err)
	}
	reply, err := r.coord().Read(t.Context(), &coordpb.ReadRequest{Read: get("/")})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, reply.GetError(), coordpb.Code_CODE_OVERLOADED)
	if reply.GetError().GetRetryAfterMs() == 0 {
		t.Error("does not say when to come back")
	}
	release()
	reply, err = r.coord().Read(t.Context(), &coordpb.ReadRequest{Read: get("/")})
	if err != nil || reply.GetError() != nil {
		t.Fatal(reply, err)
	}
}

func TestLimitsAreValidated(t *testing.T) {
	if err := (Limits{}).WithDefaults().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for name, l := range map[string]Limits{
		settingNode:     {NodeBytes: 1 << 30},
		settingFrame:    {FrameBytes: 1},
		settingInFlight: {RequestsInFlight: session.MaxUnacked + 1},
		settingQueue:    {QueueBytes: -1},
		settingPath:     {PathBytes: 1 << 20},
	} {
		if err := l.WithDefaults().Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: error %v does not name %s", l, err, name)
		}
	}
}
