package test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/wire"
)

// residentKiB is the memory that a process has in use.
func residentKiB(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// etcd PR#22147: what was sent was read without limit. Before the handshake next to
// nothing is read, and afterwards no more than a frame may be, which is paid for as
// it comes.
func TestHugeFramesOfZooKeepersClientsCostNothing(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	c := startProcesses(t, 1, "")
	host := c.nodes[0].zookeeper()
	good := zkOpen(t, host)
	before := residentKiB(t, c.nodes[0].Pid())
	head := binary.BigEndian.AppendUint32(nil, 1<<30)
	stranger := zkDial(t, host)
	stranger.raw(head)
	stranger.closed("1 GiB as a handshake")
	long := zkDial(t, host)
	long.raw(binary.BigEndian.AppendUint32(nil, 8<<10))
	long.closed("a handshake of 8 KiB")
	client := zkOpen(t, host)
	client.raw(head)
	client.closed("1 GiB as a request")
	// Lengths that are allowed, and nothing behind them.
	for range 500 {
		zkDial(t, host).raw(binary.BigEndian.AppendUint32(nil, 4<<10))
	}
	for range 100 {
		zkOpen(t, host).raw(binary.BigEndian.AppendUint32(nil, wire.MaxFrameBytes))
	}
	if after := residentKiB(t, c.nodes[0].Pid()); after > before+100<<10 {
		t.Errorf("%d KiB became %d KiB", before, after)
	}
	good.must(zkRead(wire.Exists, "/", false))
}

// rqlite PR#2686: nothing bounded the connections to a port.
func TestConnectionsOfZooKeepersClientsAreBounded(t *testing.T) {
	t.Parallel()
	const most = 10
	c := startProcesses(t, 1, fmt.Sprintf("limits: {connections_per_address: %d}\nzookeeper: {words: ['*']}\n", most))
	host := c.nodes[0].zookeeper()
	var open []*zkLink
	refused := 0
	for range 3 * most {
		l, err := zkLinkTo(host, 10*time.Second, nil)
		if err != nil {
			refused++
			continue
		}
		open = append(open, l)
	}
	if len(open) != most || refused != 2*most {
		t.Errorf("%d connections were let in and %d were not, want %d", len(open), refused, most)
	}
	for _, l := range open {
		if _, err := l.call(zkPatient, zkPing); err != nil {
			t.Errorf("a connection that was let in: %v", err)
		}
	}
	for _, l := range open[:most/2] {
		l.net.Close()
	}
	poll(t, zkPatient, "a place is free again", func() error {
		l, err := zkLinkTo(host, 10*time.Second, nil)
		if err == nil {
			l.net.Close()
		}
		return err
	})
	poll(t, zkPatient, "the refused are counted", func() error {
		nc, err := net.Dial("tcp", host)
		if err != nil {
			return err
		}
		nc.Close()
		if n := zkFigure(t, host, "connection_drop_count"); n < 2*most {
			return fmt.Errorf("%d are counted", n)
		}
		return nil
	})
}

// apache/helix#962: a listing that a client did not take looked like a lost
// connection, and was asked for again for ever. The limit is the client's; the
// server gives the whole list, and can say beforehand how long it is.
func TestLongListingOfAZooKeeperClientCanBeSeenComing(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	c := startProcesses(t, 1, "")
	l, err := zkLinkTo(c.nodes[0].zookeeper(), 10*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.one(zkCreate("/long", "", 0)); err != nil {
		t.Fatal(err)
	}
	const children, each = 20_000, 1000
	name := strings.Repeat("n", 100)
	for i := 0; i < children; i += each {
		var ops []wire.Op
		for range each {
			ops = append(ops, zkCreate("/long/"+name, "", wire.FlagSequential).Op)
		}
		if _, err := l.one(zkMulti(ops...)); err != nil {
			t.Fatal(err)
		}
	}
	rs, err := l.call(zkPatient, zkRead(wire.Exists, "/long", false), zkRead(wire.GetAllChildrenNumber, "/long", false), zkRead(wire.GetChildren, "/long", false))
	if err != nil {
		t.Fatal(err)
	}
	if rs[0].Stat.NumChildren != children || rs[1].Number != children || len(rs[2].Names) != children || len(rs[2].record) < 2<<20 {
		t.Errorf("%d, %d, %d children in %d bytes", rs[0].Stat.NumChildren, rs[1].Number, len(rs[2].Names), len(rs[2].record))
	}
}

// TestFrameSizeIsASetting, as jute.maxbuffer is: what fits is taken, and what does
// not ends the connection.
func TestFrameSizeIsASetting(t *testing.T) {
	t.Parallel()
	const frame = 3 << 20
	c := startProcesses(t, 1, fmt.Sprintf("limits: {node_size: %d}\nzookeeper: {frame_size: %d}\n", frame, frame))
	l, err := zkLinkTo(c.nodes[0].zookeeper(), 10*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.one(zkCreate("/big", strings.Repeat("x", frame-1000), 0)); err != nil {
		t.Fatal(err)
	}
	if r, err := l.one(zkRead(wire.GetData, "/big", false)); err != nil || len(r.Data) != frame-1000 {
		t.Errorf("%d bytes, %v", len(r.Data), err)
	}
	_, err = l.call(zkPatient, zkSet("/big", strings.Repeat("x", frame), -1))
	var timeout net.Error
	if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("a frame above the limit: %v", err)
	}
}
