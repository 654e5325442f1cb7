package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/contexts"
	"github.com/coordd/coord/internal/tied"
)

// Cluster says how to reach a cluster. The zero value is none.
type Cluster struct {
	Endpoints  string `json:"endpoints"`
	CACert     string `json:"cacert,omitempty"` // files; none: no TLS
	Cert       string `json:"cert,omitempty"`
	Key        string `json:"key,omitempty"`
	ServerName string `json:"serverName,omitempty"`
}

func (c *Cluster) options() []client.Option {
	var opts []client.Option
	if c.CACert != "" || c.Cert != "" {
		opts = append(opts, client.WithTLSFiles(c.CACert, c.Cert, c.Key))
	}
	if c.ServerName != "" {
		opts = append(opts, client.WithServerName(c.ServerName))
	}
	return opts
}

// ownCluster is a three-server cluster that a demonstration started for itself.
type ownCluster struct {
	endpoints []string
	coordd    string
	cmd       *exec.Cmd // coordd dev
	dir       string
	data      string            // of coordd dev, in dir
	again     map[int]*exec.Cmd // servers that were killed and that we started again
}

// startCluster runs `coordd dev` and waits until its servers are ready. The
// context that coordd dev saves goes into a file of ours, not the user's.
func startCluster(ctx context.Context) (*ownCluster, error) {
	coordd, err := findCoordd()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "coord-demo-")
	if err != nil {
		return nil, err
	}
	c := &ownCluster{coordd: coordd, dir: dir, data: filepath.Join(dir, "data"), again: map[int]*exec.Cmd{}}
	var said bytes.Buffer
	c.cmd = exec.Command(coordd, "dev", "--nodes", "3", "--data-dir", c.data)
	c.cmd.Stdout, c.cmd.Stderr = io.Discard, &said
	saved := filepath.Join(dir, "contexts.yaml")
	c.cmd.Env = append(os.Environ(), "COORDCTL_CONFIG="+saved)
	if err := tied.Start(c.cmd, syscall.SIGTERM); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("start a cluster: %w", err)
	}
	exited := make(chan error, 1)
	go func() { exited <- c.cmd.Wait() }()
	for {
		if f, err := contexts.Load(saved); err == nil && len(f.Contexts["dev"].Endpoints) > 0 {
			c.endpoints = f.Contexts["dev"].Endpoints
			return c, nil
		}
		select {
		case err := <-exited:
			os.RemoveAll(dir)
			return nil, fmt.Errorf("coordd dev ended: %w\n%s", err, said.Bytes())
		case <-ctx.Done():
			_ = c.cmd.Process.Kill() // fails only if it has ended
			err := <-exited
			os.RemoveAll(dir)
			return nil, fmt.Errorf("waiting for a cluster: %w (coordd dev: %w)\n%s", context.Cause(ctx), err, said.Bytes())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (c *ownCluster) target() string { return strings.Join(c.endpoints, ",") }

// close stops the servers and throws their data away.
func (c *ownCluster) close() error {
	for _, cmd := range c.again {
		_ = cmd.Process.Kill() // fails only if it has ended
		_ = cmd.Wait()
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	for deadline := time.Now().Add(15 * time.Second); c.cmd.Process.Signal(syscall.Signal(0)) == nil; {
		if time.Now().After(deadline) {
			_ = c.cmd.Process.Kill()
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return os.RemoveAll(c.dir)
}

// findCoordd looks for the server's program beside this one, then on the PATH.
func findCoordd() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "coordd")
		if st, err := os.Stat(beside); err == nil && st.Mode().IsRegular() {
			return beside, nil
		}
	}
	path, err := exec.LookPath("coordd")
	if err != nil {
		return "", errors.New("no cluster answers at the endpoints, and coordd is neither beside coordctl nor on the PATH to start one")
	}
	return path, nil
}
