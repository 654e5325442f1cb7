package server

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/znode"
)

// FuzzRequest: no message of a client panics the server, and every write that
// it lets through can be encoded, is valid for the leader, and means the same
// when it is decoded again.
func FuzzRequest(f *testing.F) {
	ttl := create("/t", "x")
	ttl.Node, ttl.TtlMs, ttl.Sequential = coordpb.NodeKind_NODE_KIND_TTL, 5, true
	ttl.Acl = []*coordpb.ACL{{Perms: 99, Scheme: "auth"}}
	bid := create("/e", "")
	bid.Node, bid.TtlMs, bid.LingerMs = coordpb.NodeKind_NODE_KIND_EPHEMERAL, 5, 6
	won := set("/e", "")
	won.TtlMs, won.LingerMs = -1, -1
	check := &coordpb.Op{Kind: coordpb.Op_KIND_CHECK, Path: "/a", Version: 3, Czxid: 7, Owner: 9}
	for _, req := range []*coordpb.SessionRequest{
		{Hello: &coordpb.Hello{Mode: coordpb.Hello_MODE_OPEN, Nonce: nonce(), Auth: []*coordpb.Auth{{Scheme: "digest", Credential: []byte("a:b")}}}},
		{Ack: 1, Requests: []*coordpb.Request{put(1, ttl), {Seq: 2, Write: &coordpb.Write{Multi: true, Ops: []*coordpb.Op{check, set("/a", "")}}}}},
		{Ack: 1, Requests: []*coordpb.Request{put(1, bid), put(2, won)}},
		{Requests: []*coordpb.Request{{Seq: 1, Skip: &coordpb.Skip{Code: 40}}, {Seq: 2, Close: true}}},
		{Requests: []*coordpb.Request{ask(1, get("/")), {Id: 2, Watch: &coordpb.Watch{Path: "/", Kind: coordpb.Watch_KIND_RECURSIVE, Since: 1}}, {Id: 2, Unwatch: true}}},
	} {
		b, err := proto.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	s, _ := fakeServer(f)
	limits := Limits{}.WithDefaults()
	f.Fuzz(func(t *testing.T, b []byte) {
		var msg coordpb.SessionRequest
		if proto.Unmarshal(b, &msg) != nil {
			return
		}
		for _, r := range msg.GetRequests() {
			if r.GetWrite() != nil {
				checkWrite(t, r.GetWrite(), &limits)
			}
		}
		feed(t, s, &msg)
	})
}

func checkWrite(t *testing.T, w *coordpb.Write, limits *Limits) {
	t.Helper()
	write, err := decodeWrite(w, limits)
	if err != nil {
		if codeOf(err) == fsm.CodeInternal {
			t.Fatalf("refused with %v, which is in no table", err)
		}
		return
	}
	cmd := fsm.Command{Kind: fsm.CmdWrite, Line: fsm.LineRef{Session: 1, Generation: 1}, Seq: 1, Write: write}
	encoded := fsm.AppendCommand(nil, &cmd)
	if err := fsm.Validate(encoded); err != nil {
		t.Fatalf("let through, but not valid for the leader: %v: %v", err, w)
	}
	var again fsm.Command
	if err := fsm.DecodeCommand(encoded, &again); err != nil {
		t.Fatal(err)
	}
	for i := range write.Ops {
		if got, want := again.Write.Ops[i], write.Ops[i]; got.Path != want.Path || got.Kind != want.Kind || got.Version != want.Version ||
			got.TTL != want.TTL || got.Linger != want.Linger || got.Node != want.Node || (got.Data == nil) != (want.Data == nil) || !equalACL(got.ACL, want.ACL) {
			t.Fatalf("operation %d: %+v became %+v", i, want, got)
		}
	}
}

func equalACL(a, b []znode.ACL) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// feed runs a whole stream whose first message is msg.
func feed(t *testing.T, s *Server, msg *coordpb.SessionRequest) {
	t.Helper()
	if msg.GetHello() == nil {
		msg.Hello = &coordpb.Hello{Mode: coordpb.Hello_MODE_OPEN, Nonce: nonce()}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	p := &pipe{ctx, make(chan *coordpb.SessionRequest, 1), make(chan *coordpb.SessionReply, 1000)}
	p.in <- msg
	close(p.in)
	o := s.open(ctx, p)
	if o.err != nil {
		if codeOf(o.err) == fsm.CodeInternal {
			t.Fatal(o.err)
		}
		return
	}
	if err := s.serve(ctx, o, p); err != nil {
		t.Fatal(err)
	}
	if n := s.metrics.panics.Load() + s.faults.n.Load(); n != 0 {
		t.Fatalf("%d panics or internal errors", n)
	}
}
