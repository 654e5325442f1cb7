package test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/wire"
)

const (
	// reconnecting is how many sessions of our own there are, in one process.
	reconnecting = 5000
	// zkReconnecting is how many connections of ZooKeeper's clients come back.
	zkReconnecting = 2000
	// mostRequests is how often one session may ask before it is served again.
	mostRequests = 3
)

// requestsBut is how many requests all servers but one have answered.
func (c *processes) requestsBut(but *process, protocol string, ops ...string) (sum float64) {
	c.t.Helper()
	for _, p := range c.nodes {
		if p == but {
			continue
		}
		resp, err := http.Get("http://" + p.http() + "/metrics")
		if err != nil {
			c.t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			c.t.Fatal(err)
		}
		for line := range strings.Lines(string(body)) {
			labels, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
			if !ok || !strings.HasPrefix(labels, "coord_requests_total{") || !strings.Contains(labels, `protocol="`+protocol+`"`) {
				continue
			}
			for _, op := range ops {
				if strings.Contains(labels, `op="`+op+`"`) {
					n, err := strconv.ParseFloat(value, 64)
					if err != nil {
						c.t.Fatal(err)
					}
					sum += n
				}
			}
		}
	}
	return sum
}

// openMany opens sessions of one client, which share connections.
func openMany(t *testing.T, c *processes, n int) []*client.Session {
	t.Helper()
	cl := dial(t, c.endpoints(), client.WithSessionTimeout(30*time.Second))
	sessions := make([]*client.Session, n)
	each(n, func(i int) {
		s, err := cl.NewSession(t.Context(), client.WithSessionTimeout(30*time.Second))
		if err != nil {
			t.Errorf("session %d: %v", i, err)
			return
		}
		sessions[i] = s
	})
	if t.Failed() {
		t.FailNow()
	}
	return sessions
}

// each calls f for 0 to n-1, some at a time.
func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range 64 {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// TestThousandsOfSessionsComeBackAfterTheLeaderIsKilled: none is lost, and they do
// not come again and again.
func TestThousandsOfSessionsComeBackAfterTheLeaderIsKilled(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	sessions := openMany(t, c, reconnecting)
	lead := c.leader()
	hellos := []string{"open", "attach"}
	before := c.requestsBut(lead, "grpc", hellos...)
	lead.kill()
	begin := time.Now()
	each(len(sessions), func(i int) {
		ctx, cancel := context.WithTimeout(context.Background(), patience*30*time.Second)
		defer cancel()
		if _, err := sessions[i].Client().Sync(ctx); err != nil {
			t.Errorf("session %d: %v", i, err)
		}
	})
	took := time.Since(begin)
	asked := c.requestsBut(lead, "grpc", hellos...) - before
	t.Logf("%d sessions were served again within %v; %v hellos", len(sessions), took, asked)
	if asked == 0 || asked > mostRequests*float64(len(sessions)) {
		t.Errorf("%d sessions asked %v times for a server, at most %d times each is right", len(sessions), asked, mostRequests)
	}
	for i, s := range sessions {
		if err := s.Context().Err(); err != nil {
			t.Errorf("session %d has ended: %v", i, context.Cause(s.Context()))
		}
	}
}

// TestThousandsOfZooKeepersClientsComeBackAfterTheLeaderIsKilled: the same on the
// ZooKeeper port; each client tries the other servers in turn, as ZooKeeper's do.
func TestThousandsOfZooKeepersClientsComeBackAfterTheLeaderIsKilled(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	lead := c.leader()
	var others []string
	for _, p := range c.nodes {
		if p != lead {
			others = append(others, p.zookeeper())
		}
	}
	conns := make([]*zkConn, zkReconnecting)
	for i := range conns { // all at the leader
		conns[i] = zkDial(t, lead.zookeeper())
		conns[i].hello(&wire.ConnectRequest{Timeout: 20 * time.Second, Password: make([]byte, 16), HasReadOnly: true})
	}
	before := c.requestsBut(lead, "zookeeper", "attach")
	lead.kill()
	tried := make([]int, len(conns))
	each(len(conns), func(i int) {
		for ; tried[i] < 10*mostRequests; time.Sleep(100 * time.Millisecond) {
			tried[i]++
			err := conns[i].tryResume(others[(i+tried[i])%len(others)])
			if err == nil {
				return
			}
			t.Logf("client %d, try %d: %v", i, tried[i], err)
		}
	})
	sum := 0
	for i, n := range tried {
		if sum += n; n > mostRequests {
			t.Errorf("client %d tried %d times, at most %d is right", i, n, mostRequests)
		}
	}
	asked := c.requestsBut(lead, "zookeeper", "attach") - before
	t.Logf("%d clients are back after %d tries, %v requests", len(conns), sum, asked)
	if asked < zkReconnecting || asked > mostRequests*zkReconnecting {
		t.Errorf("%d clients asked %v times", zkReconnecting, asked)
	}
}

// tryResume moves the session of a connection to another server. It may be called
// on any goroutine.
func (c *zkConn) tryResume(host string) error {
	nc, err := net.Dial("tcp", host)
	if err != nil {
		return err
	}
	c.t.Cleanup(func() { nc.Close() })
	n := &zkConn{t: c.t, net: nc, host: host}
	n.write((&wire.ConnectRequest{Timeout: c.timeout, Session: c.session, Password: c.password, LastZxid: c.last}).Append(nil))
	frame, err := n.read(zkPatient)
	if err != nil {
		return err
	}
	var p wire.ConnectResponse
	if err := p.Decode(frame); err != nil {
		return err
	}
	if p.Session != c.session {
		return fmt.Errorf("session %v was lost: the server answers %v", c.session, p.Session)
	}
	return nil
}
