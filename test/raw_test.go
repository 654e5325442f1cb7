package test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/coordd/coord/api/coordpb"
)

// rawSession is a session stream without the client's care: it sends what it is
// told to.
type rawSession struct {
	t       testing.TB
	stream  coordpb.Coord_SessionClient
	cancel  context.CancelFunc
	welcome *coordpb.Welcome
	seq     uint64
	replies map[uint64]*coordpb.Reply // that nobody has asked for yet, by number
}

func connect(t testing.TB, address string, creds credentials.TransportCredentials, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, append([]grpc.DialOption{grpc.WithTransportCredentials(creds)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// greet says hello and waits for the welcome, which may be a refusal.
func greet(t testing.TB, conn *grpc.ClientConn, h *coordpb.Hello) *rawSession {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	r := &rawSession{t: t, cancel: cancel, replies: map[uint64]*coordpb.Reply{}}
	var err error
	if r.stream, err = coordpb.NewCoordClient(conn).Session(ctx); err != nil {
		t.Fatal(err)
	}
	r.send(&coordpb.SessionRequest{Hello: h})
	r.welcome = r.receive().GetWelcome()
	if r.welcome == nil {
		t.Fatal("the first message is no welcome")
	}
	return r
}

func rawHello() *coordpb.Hello {
	h := &coordpb.Hello{Mode: coordpb.Hello_MODE_OPEN, Nonce: make([]byte, 16), TimeoutMs: 60_000}
	rand.Read(h.Nonce)
	return h
}

// attachHello is the hello for connection number n of the session.
func (r *rawSession) attachHello(n uint64) *coordpb.Hello {
	w := r.welcome
	return &coordpb.Hello{Mode: coordpb.Hello_MODE_ATTACH, SessionId: w.GetSessionId(), Secret: w.GetSecret(), Connection: n, ClusterId: w.GetClusterId()}
}

func (r *rawSession) send(m *coordpb.SessionRequest) {
	r.t.Helper()
	if err := r.stream.Send(m); err != nil && !errors.Is(err, io.EOF) { // what ended the stream, receive says
		r.t.Fatal(err)
	}
}

func (r *rawSession) receive() *coordpb.SessionReply {
	r.t.Helper()
	m, err := r.stream.Recv()
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// write makes the session's next write and returns the answer to it.
func (r *rawSession) write(ops ...*coordpb.Op) *coordpb.Reply {
	r.t.Helper()
	r.seq++
	w := &coordpb.Write{Ops: ops, Multi: len(ops) > 1}
	r.send(&coordpb.SessionRequest{Requests: []*coordpb.Request{{Seq: r.seq, Write: w}}})
	return r.answer(r.seq)
}

func (r *rawSession) answer(seq uint64) *coordpb.Reply {
	r.t.Helper()
	for r.replies[seq] == nil {
		m := r.receive()
		if e := m.GetGoodbye().GetError(); e != nil {
			r.t.Fatalf("the stream ends: %v", e)
		}
		for _, reply := range m.GetReplies() {
			r.replies[reply.GetSeq()] = reply
		}
	}
	return r.replies[seq]
}

// lives fails the test unless the session takes a write on this very stream.
func (r *rawSession) lives(what string) {
	r.t.Helper()
	path := fmt.Sprintf("/lives-%x-", r.welcome.GetSessionId())
	got := r.write(&coordpb.Op{Kind: coordpb.Op_KIND_CREATE, Path: path, Sequential: true, Version: -1})
	if got.GetError() != nil {
		r.t.Errorf("%s: the session's next write: %v", what, got.GetError())
	}
}
