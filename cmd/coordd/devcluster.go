package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/coordd/coord/api/coordpb"
)

// devCluster is the set of processes that `coordd dev` runs.
type devCluster struct {
	dir     string
	nodes   []*devNode
	log     io.Writer
	verbose bool
	tails   sync.WaitGroup
	stopped chan struct{} // closed by stop: ends the tails
	died    chan string   // names of servers that ended unasked; bounded, see exited
}

func newDevCluster(dir string, base int, o devOptions, log io.Writer) (*devCluster, error) {
	d := &devCluster{
		dir: dir, log: log, verbose: o.verbose,
		stopped: make(chan struct{}), died: make(chan string, 64),
	}
	conf := filepath.Join(dir, "coordd.yaml")
	var peers []string
	for i := range o.nodes {
		n := &devNode{name: fmt.Sprintf("n%d", i+1), base: base + devPortStep*i, conf: conf}
		n.dir = filepath.Join(dir, n.name)
		d.nodes = append(d.nodes, n)
		peers = append(peers, n.name+"="+n.peer())
	}
	text, err := yaml.Marshal(map[string]any{
		"cluster": map[string]any{"name": "dev", "bootstrap": "auto", "peers": peers},
		"log":     map[string]any{"format": "text"},
	})
	if err != nil {
		return nil, err
	}
	return d, os.WriteFile(conf, text, 0o600)
}

func (d *devCluster) startAll() error {
	for _, n := range d.nodes {
		from := logEnd(n.logFile())
		d.tails.Go(func() { d.tail(n, from) })
		if err := n.start(d.exited); err != nil {
			return err
		}
	}
	return nil
}

// exited reports a server's end. An unexpected one is shown and neither
// restarted nor the end of the others.
func (d *devCluster) exited(n *devNode, err error, unexpected bool) {
	if !unexpected {
		return
	}
	how := "it exited"
	if err != nil {
		how = err.Error()
	}
	fmt.Fprintf(d.log, "coordd dev: %s has ended: %s; its log is %s\n", n.name, how, n.logFile())
	select {
	case d.died <- n.name:
	default: // nobody waits for it: only waitReady reads
	}
}

// stop ends the servers one after the other, so that each can hand its leadership
// over: SIGTERM, and SIGKILL for those that are still there after 10 s.
func (d *devCluster) stop() {
	close(d.stopped)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, n := range d.nodes {
		n.signal(syscall.SIGCONT, true)
		n.signal(syscall.SIGTERM, true)
		if !n.wait(ctx) {
			n.signal(syscall.SIGKILL, true)
			n.wait(context.Background())
		}
	}
	d.tails.Wait()
}

func (d *devCluster) endpoints() []string {
	var out []string
	for _, n := range d.nodes {
		out = append(out, n.grpc())
	}
	return out
}

// waitReady waits until every server is ready and has a vote, in the eyes of the
// leader too, so that from then on any one of three may fail and `coordctl status`
// calls the cluster healthy.
func (d *devCluster) waitReady(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not ready after %s", limit))
	defer cancel()
	for _, n := range d.nodes {
		for {
			st, err := n.status(ctx)
			if err == nil && allVote(st, len(d.nodes)) {
				break
			}
			select {
			case name := <-d.died:
				return fmt.Errorf("%s did not start; its last words:\n%s", name, lastLines(filepath.Join(d.dir, name, "coordd.log"), 5))
			case <-ctx.Done():
				return fmt.Errorf("%s: %w (%s)", n.name, context.Cause(ctx), why(st, err))
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}

func allVote(st *coordpb.StatusReply, servers int) bool {
	votes := 0
	for _, m := range st.Members {
		if m.Ready && m.InContact && (m.Role == coordpb.Member_ROLE_LEADER || m.Role == coordpb.Member_ROLE_VOTER) {
			votes++
		}
	}
	return st.Ready && st.MembersFromLeader && votes == servers
}

func why(st *coordpb.StatusReply, err error) string {
	if err != nil {
		return err.Error()
	}
	parts := []string{st.Waiting}
	for _, m := range st.Members {
		if m.Role == coordpb.Member_ROLE_JOINING || m.Role == coordpb.Member_ROLE_MISSING {
			parts = append(parts, m.Name+" has no vote yet "+m.Detail)
		}
	}
	for _, c := range st.Checks {
		if !c.Ok {
			parts = append(parts, c.Name+": "+c.Detail)
		}
	}
	return strings.Trim(strings.Join(parts, "; "), "; ")
}

// status asks the server how it is.
func (n *devNode) status(ctx context.Context) (*coordpb.StatusReply, error) {
	conn, err := grpc.NewClient(n.grpc(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return coordpb.NewAdminClient(conn).Status(ctx, &coordpb.StatusRequest{})
}

// leader is the server that says it leads, nil if none does.
func (d *devCluster) leader() *devNode {
	for _, n := range d.nodes {
		if n.pid() == 0 {
			continue
		}
		if st, err := n.status(context.Background()); err == nil && st.Leader == n.name {
			return n
		}
	}
	return nil
}

func (d *devCluster) printTable(w io.Writer) {
	leader := d.leader()
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "NODE\tPID\tGRPC\tHTTP\tZOOKEEPER\tROLE")
	for _, n := range d.nodes {
		role, pid := "follower", fmt.Sprint(n.pid())
		switch {
		case n.pid() == 0:
			role, pid = "stopped", "-"
		case n.isPaused():
			role = "paused"
		case n == leader:
			role = "leader"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", n.name, pid, n.grpc(), n.http(), n.zookeeper(), role)
	}
	_ = tw.Flush()
}

// errQuit ends the cluster at the user's wish.
var errQuit = errors.New("quit")
