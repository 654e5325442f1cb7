package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/cluster/peerpb"
)

// TestPeerPortIsBounded: who has proved nothing can neither fill the memory of a
// server through its peer port, nor keep the other servers out, nor ask what is
// for members.
func TestPeerPortIsBounded(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	cl := dial(t, c.endpoints())
	p := c.nodes[0]
	address := p.ports()["peer"]

	guest := peerpb.NewPeerClient(guestConn(t, address))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if d, err := guest.Discover(ctx, &peerpb.DiscoverRequest{}); err != nil || d.GetName() != p.name {
		t.Fatalf("discover: %v, %v", d, err)
	}
	if _, err := guest.Discover(ctx, &peerpb.DiscoverRequest{Name: strings.Repeat("x", 50<<20)}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("50 MiB from a guest: %v", err)
	}
	if _, err := guest.Transfer(ctx, &peerpb.TransferRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a guest moves the leader: %v", err)
	}
	if _, err := guest.Members(ctx, &peerpb.MembersRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a guest lists the members: %v", err)
	}
	join := &peerpb.JoinRequest{Name: "n9", Id: "n9~0000000000000001", Address: "127.0.0.1:1", ClusterName: "test"}
	if r, err := guest.Join(ctx, join); err != nil || !strings.Contains(r.GetRefused(), "asks for") {
		t.Errorf("a guest that asks for somebody else: %v, %v", r, err)
	}

	silent, busy := 0, 0
	var conns []net.Conn
	for range 500 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	for range 100 {
		switch conn, err := guestDial(ctx, address); {
		case err == nil:
			defer conn.Close()
		case strings.Contains(err.Error(), "too many connections"):
			busy++
		default:
			t.Errorf("one guest more: %v", err)
		}
	}
	if busy == 0 {
		t.Error("any number of guests is let in")
	}
	back := c.follower()
	back.kill() // it must get through to come back
	back.start()
	poll(t, 30*time.Second, "a server comes back", back.ready)
	poll(t, 30*time.Second, "the guests that say nothing are gone", func() error {
		conn, err := guestDial(ctx, address)
		if err == nil {
			conn.Close()
		}
		return err
	})
	for _, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, io.EOF) || err != nil && !strings.Contains(err.Error(), "timeout") {
			silent++
		}
	}
	if silent != len(conns) {
		t.Errorf("%d of %d silent connections were closed", silent, len(conns))
	}
	stillWell(t, c, cl)
}

// guestDial connects to a peer port as a server that knows nothing yet.
func guestDial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	verdict, reason, err := exchangeHello(conn, peerHello(peerRPC, "", "n8~0000000000000001", ""))
	if err == nil && verdict != peerWelcome {
		err = fmt.Errorf("verdict %d: %s", verdict, reason)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func guestConn(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	return connect(t, "passthrough:///"+address, insecure.NewCredentials(), grpc.WithContextDialer(guestDial))
}
