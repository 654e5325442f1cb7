package server

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/coordd/coord/wire"
)

// FuzzZooKeeperConnection sends frames to a connection that is served. Whatever they
// are, the server goes on, that connection ends, and another one is served.
func FuzzZooKeeperConnection(f *testing.F) {
	record := func(q wire.Request) []byte { return q.Append(wire.Header{Xid: 1, Type: q.Type}.Append(nil)) }
	many := zkCreateReq("/m", 0).Op
	for _, b := range [][]byte{
		record(zkCreateReq("/a", 1)), record(zkSetReq("/", "x")), record(zkGetReq("/zookeeper/config")), record(zkDeleteReq("/a")),
		record(zkAuthReq("digest", "u:p")), record(wire.Request{Op: wire.Op{Type: wire.Sync, Path: "/"}}),
		record(wire.Request{Op: wire.Op{Type: wire.Multi}, Ops: []wire.Op{many, {Type: wire.Check, Path: "/m"}}}),
		record(wire.Request{Op: wire.Op{Type: wire.MultiRead}, Ops: []wire.Op{{Type: wire.GetData, Path: "/"}, {Type: wire.GetChildren, Path: "/"}}}),
		record(wire.Request{Op: wire.Op{Type: wire.SetWatches2}, Since: 1, Watches: [5][]string{{"/"}, {"/x"}, {"/"}, {"/"}, {"/"}}}),
		record(wire.Request{Op: wire.Op{Type: wire.AddWatch, Path: "/"}, Mode: wire.AddPersistentRecursive}),
		record(wire.Request{Op: wire.Op{Type: wire.CloseSession}}),
		{},
		{0},
		bytes.Repeat([]byte{0xff}, 60),
	} {
		f.Add(b, []byte{}, false)
		f.Add(b, record(zkSetReq("/", "y")), true)
	}
	s, _ := fakeServer(f)
	address := zkServe(f, s)
	other := zkOpen(f, address)
	f.Fuzz(func(t *testing.T, first, second []byte, raw bool) {
		nc, err := net.Dial("tcp", address)
		if err != nil {
			t.Skip(err) // out of ports
		}
		defer nc.Close()
		if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		out := zkFrame((&wire.ConnectRequest{Timeout: time.Second}).Append(nil))
		if raw { // without a length of its own
			out = append(append(out, first...), zkFrame(second)...)
		} else {
			out = append(append(out, zkFrame(first)...), zkFrame(second)...)
		}
		if _, err := nc.Write(out); err != nil {
			t.Fatal(err)
		}
		if err := nc.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, nc); errors.Is(err, os.ErrDeadlineExceeded) { // a reset is an end, too
			t.Error("the connection stays open")
		}
		other.t = t
		if err := other.net.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if code, _ := other.call(zkExistsReq("/")); code != wire.OK || s.metrics.panics.Load() > 0 {
			t.Fatalf("another client: %s, %d panics", code, s.metrics.panics.Load())
		}
	})
}
