package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/seed"
)

// ports are all that a server listens on.
func (p *process) ports() map[string]string {
	return map[string]string{"grpc": p.grpc(), "peer": fmt.Sprintf("127.0.0.1:%d", p.base+1), "http": p.http()}
}

// stillWell fails the test unless the cluster serves and has not grown beyond
// a bound.
func stillWell(t *testing.T, c *processes, cl *client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := cl.Create(ctx, "/well-", nil, client.WithSequential()); err != nil {
		t.Errorf("a write afterwards: %v", err)
	}
	for _, p := range c.nodes {
		if !p.running() {
			t.Errorf("%s has ended", p.name)
			continue
		}
		if st := p.stats(t); st.RssBytes > 600<<20 {
			t.Errorf("%s has grown to %d MiB", p.name, st.RssBytes>>20)
		}
	}
}

func (p *process) stats(t testing.TB) *coordpb.StatsReply {
	t.Helper()
	conn, err := grpc.NewClient(p.grpc(), grpc.WithTransportCredentials(p.c.credentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	st, err := coordpb.NewAdminClient(conn).Stats(ctx, &coordpb.StatsRequest{})
	if err != nil {
		t.Fatalf("stats of %s: %v", p.name, err)
	}
	return st
}

func TestGarbageOnEveryPortHarmsNobody(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	cl := dial(t, c.endpoints())
	rnd := seed.Rand(t)
	for _, prefix := range []string{
		"", "\x00\x00\x00\x2d", "\xff\xff\xff\xff", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.1\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\xff\xff\x04\x00", "ruok", "coord",
	} {
		for range 10 {
			noise := make([]byte, rnd.IntN(64<<10))
			for i := range noise {
				noise[i] = byte(rnd.Uint32())
			}
			for name, address := range c.nodes[rnd.IntN(3)].ports() {
				if err := throw(address, append([]byte(prefix), noise...)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	stillWell(t, c, cl)
}

// throw sends bytes and waits until the server closes the connection; it fails
// if that takes too long.
func throw(address string, b []byte) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, _ = conn.Write(b) // the server may have closed it already
	_ = conn.(*net.TCPConn).CloseWrite()
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return errors.New("the connection is still open after 20 s")
	}
	return nil // closed or reset
}

func TestOversizedInputIsRefusedByName(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 1, "")
	cl := dial(t, c.endpoints())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := cl.Create(ctx, "/n", nil); err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func() error{
		"limits.node_size": func() error { _, err := cl.Set(ctx, "/n", make([]byte, 1<<20+1), client.AnyVersion); return err },
		"limits.path_size": func() error { _, err := cl.Create(ctx, "/"+strings.Repeat("x", 5000), nil); return err },
		"limits.ops_per_transaction": func() error {
			_, err := cl.Txn(ctx, bytes2ops(5000)...)
			return err
		},
	} {
		err := write()
		var e *client.Error
		if !errors.As(err, &e) || (!errors.Is(err, client.ErrTooLarge) && !errors.Is(err, client.ErrLimit)) || e.Limit != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The session goes on where it was.
	st, err := cl.Set(ctx, "/n", make([]byte, 1<<20), client.AnyVersion)
	if err != nil || st.Version != 1 {
		t.Errorf("the largest data allowed: version %d, %v", st.Version, err)
	}
	n, err := cl.Get(ctx, "/n")
	if err != nil || !bytes.Equal(n.Data, make([]byte, 1<<20)) {
		t.Errorf("reading it back: %d bytes, %v", len(n.Data), err)
	}
}

func bytes2ops(n int) (ops []client.Op) {
	for range n {
		ops = append(ops, client.OpCheck("/n", client.AnyVersion))
	}
	return ops
}

func TestSilentConnectionsHarmNobody(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 1, "")
	cl := dial(t, c.endpoints())
	before := c.nodes[0].stats(t)
	var conns []net.Conn
	defer func() {
		for _, conn := range conns {
			conn.Close()
		}
	}()
	const count = 10_000
	for i := range count {
		// 20 addresses: loopback is a whole network, and one address has too few ports.
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%20))}, Timeout: 5 * time.Second}
		conn, err := d.Dial("tcp", c.nodes[0].grpc())
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, conn)
	}
	stillWell(t, c, cl)
	// They are let go of, too.
	poll(t, time.Minute, "the silent connections' end", func() error {
		if n := c.nodes[0].stats(t).Connections; n > before.Connections+100 {
			return fmt.Errorf("%d connections are open", n)
		}
		return nil
	})
}

// TestClientThatNeverReadsIsCutOff asks for more than the queue of a connection
// holds and reads none of it.
func TestClientThatNeverReadsIsCutOff(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 1, "")
	cl := dial(t, c.endpoints())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := cl.Create(ctx, "/big", make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(c.nodes[0].grpc(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := coordpb.NewCoordClient(conn).Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&coordpb.SessionRequest{Hello: &coordpb.Hello{Mode: coordpb.Hello_MODE_NONE}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	for id := uint64(1); ; id++ {
		read := &coordpb.Request{Id: id, Read: &coordpb.Read{Kind: coordpb.Read_KIND_GET, Path: "/big", Mode: coordpb.ReadMode_READ_MODE_SESSION}}
		sent := make(chan error, 1)
		go func() { sent <- stream.Send(&coordpb.SessionRequest{Requests: []*coordpb.Request{read}}) }()
		select {
		case err = <-sent:
		case <-time.After(2 * time.Second):
			err = errors.New("the server has stopped reading") // back-pressure is right, too
		}
		if err != nil {
			break
		}
		if id > 200_000 { // far more than all windows and queues hold
			t.Fatal("the server goes on taking requests for replies that nobody reads")
		}
	}
	stillWell(t, c, cl)
}

func TestHugeHTTPRequestIsCutOff(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 1, "")
	cl := dial(t, c.endpoints())
	req, err := http.NewRequest(http.MethodPost, "http://"+c.nodes[0].http()+"/readyz", io.LimitReader(zeros{}, 1<<30))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
	}
	req, _ = http.NewRequest(http.MethodGet, "http://"+c.nodes[0].http()+"/readyz", nil)
	req.Header.Set("X-Long", strings.Repeat("x", 4<<20))
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("a header of 4 MiB was taken")
		}
	}
	stillWell(t, c, cl)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
