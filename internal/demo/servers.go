package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/tied"
)

// lookEvery is the pause before something is looked at again.
const lookEvery = 20 * time.Millisecond

// leader waits for a server that leads and returns its place among the
// endpoints.
func (c *ownCluster) leader(ctx context.Context, a *client.Admin) (int, error) {
	for {
		for i, e := range c.endpoints {
			if st, err := c.status(ctx, a, e); err == nil && st.Leader == serverName(i) {
				return i, nil
			}
		}
		if err := lookAgain(ctx); err != nil {
			return 0, fmt.Errorf("no server leads: %w", err)
		}
	}
}

// whole waits until all servers are in contact with a leader and vote, so that
// one of them may be killed.
func (c *ownCluster) whole(ctx context.Context, a *client.Admin) error {
	for _, e := range c.endpoints {
		for {
			if st, err := c.status(ctx, a, e); err == nil && allVote(st, len(c.endpoints)) {
				break
			}
			if err := lookAgain(ctx); err != nil {
				return fmt.Errorf("the server at %s is not ready: %w", e, err)
			}
		}
	}
	return nil
}

func (c *ownCluster) status(ctx context.Context, a *client.Admin, endpoint string) (*coordpb.StatusReply, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return a.At(endpoint).Status(ctx, &coordpb.StatusRequest{})
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

// kill ends a server as a power cut ends it, and returns when it has gone.
func (c *ownCluster) kill(ctx context.Context, i int) error {
	if cmd := c.again[i]; cmd != nil {
		delete(c.again, i)
		err := cmd.Process.Kill()
		_ = cmd.Wait() // it says that it was killed
		return err
	}
	pidFile := filepath.Join(c.data, serverName(i), "coordd.pid")
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("%s: %w", pidFile, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	for { // coordd dev removes the file at the process's end
		if _, err := os.Stat(pidFile); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err := lookAgain(ctx); err != nil {
			return err
		}
	}
}

// start runs a server that was killed again, on the data it had: coordd dev
// leaves the dead alone.
func (c *ownCluster) start(i int) error {
	host, port, err := net.SplitHostPort(c.endpoints[i])
	if err != nil {
		return err
	}
	base, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	dir := filepath.Join(c.data, serverName(i))
	cmd := exec.Command(c.coordd, "run", "--config", filepath.Join(c.data, "coordd.yaml"))
	cmd.Env = append(os.Environ(),
		"COORDD_NODE_NAME="+serverName(i),
		"COORDD_NODE_DATA_DIR="+filepath.Join(dir, "data"),
		"COORDD_LISTEN_GRPC="+c.endpoints[i],
		"COORDD_LISTEN_PEER="+net.JoinHostPort(host, strconv.Itoa(base+1)),
		"COORDD_LISTEN_HTTP="+net.JoinHostPort(host, strconv.Itoa(base+2)),
		"COORDD_LISTEN_ZOOKEEPER="+net.JoinHostPort(host, strconv.Itoa(base+3)),
	)
	if err := tied.Start(cmd, syscall.SIGKILL); err != nil {
		return fmt.Errorf("start %s again: %w", serverName(i), err)
	}
	c.again[i] = cmd
	return nil
}

// serverName is how coordd dev calls its servers.
func serverName(i int) string { return "n" + strconv.Itoa(i+1) }

// lookAgain waits before something is looked at again, or returns why ctx has ended.
func lookAgain(ctx context.Context) error {
	t := time.NewTimer(lookEvery)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
