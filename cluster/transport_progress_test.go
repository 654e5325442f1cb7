package cluster

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// thinLink carries 5 MB a second.
type thinLink struct{ net.Conn }

func (l thinLink) Write(b []byte) (int, error) {
	if len(b) > 10_000 {
		time.Sleep(time.Duration(len(b)) * 200)
	}
	return l.Conn.Write(b)
}

// An operator who waits for a new server sees how much of the snapshot it has.
func TestProgressOfASnapshotIsShown(t *testing.T) {
	tune := func(c *Config) {
		listing(3)(c)
		smallSnapshots(c)
		dial := c.Net.Dial
		c.Net.Dial = func(ctx context.Context, to string) (net.Conn, error) {
			conn, err := dial(ctx, to)
			if err == nil && strings.HasPrefix(to, "n4:") {
				conn = thinLink{conn}
			}
			return conn, err
		}
	}
	inFakeTime(t, 4, tune, func(w *world) {
		w.start("n1", "n2", "n3")
		w.awaitFormed()
		leader := w.awaitLeader()
		for i := range 100 {
			if r := w.propose(leader, bigOp(fmt.Sprintf("/big%d", i), 100<<10)).wait(t, time.Second); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if _, err := w.node(leader).Snapshot(); err != nil {
			t.Fatal(err)
		}
		w.start("n4")
		var shown []int
		w.eventually(time.Minute, "a vote", func() bool {
			detail := w.memberAt(leader, "n4").Detail
			var percent int
			if _, text, ok := strings.Cut(detail, "snapshot "); ok {
				if _, err := fmt.Sscanf(text, "%d %%, then 1s of stability, then it votes", &percent); err == nil {
					shown = append(shown, percent)
				}
			}
			return w.memberAt(leader, "n4").Role == RoleVoter
		})
		last, different := -1, 0
		for _, p := range shown {
			if p < last || p > 99 {
				t.Fatalf("shown in this order: %v", shown)
			}
			if p > last {
				different++
			}
			last = p
		}
		if different < 5 {
			t.Errorf("shown were only %v", shown)
		}
		if d := w.memberAt(leader, "n4").Detail; strings.Contains(d, "snapshot") {
			t.Errorf("afterwards: %q", d)
		}
	})
}
