package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/coordd/coord/internal/tied"
)

// devNode is one server process of `coordd dev`.
type devNode struct {
	name string
	base int // its gRPC port
	dir  string
	conf string

	mu      sync.Mutex
	process *os.Process // nil while it does not run
	wanted  bool        // started by us and not killed by a key
	paused  bool
}

func (n *devNode) grpc() string      { return loopback(n.base) }
func (n *devNode) peer() string      { return loopback(n.base + 1) }
func (n *devNode) http() string      { return loopback(n.base + 2) }
func (n *devNode) zookeeper() string { return loopback(n.base + 3) }

func (n *devNode) pidFile() string { return filepath.Join(n.dir, "coordd.pid") }
func (n *devNode) logFile() string { return filepath.Join(n.dir, "coordd.log") }

// pid is 0 while the process does not run.
func (n *devNode) pid() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return 0
	}
	return n.process.Pid
}

func (n *devNode) isPaused() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.paused
}

// start runs the server. exited is called once it has ended, with whether it
// was expected to go on.
func (n *devNode) start(exited func(n *devNode, err error, unexpected bool)) error {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	cmd, err := n.command()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stderr = log
	if err := tied.Start(cmd, syscall.SIGKILL); err != nil {
		return fmt.Errorf("start %s: %w", n.name, err)
	}
	if err := os.WriteFile(n.pidFile(), []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o600); err != nil {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	n.mu.Lock()
	n.process, n.wanted, n.paused = cmd.Process, true, false
	n.mu.Unlock()
	go func() {
		err := cmd.Wait()
		n.mu.Lock()
		unexpected := n.wanted
		n.process = nil
		os.Remove(n.pidFile())
		n.mu.Unlock()
		exited(n, err, unexpected)
	}()
	return nil
}

func (n *devNode) command() (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "run", "--config", n.conf)
	cmd.Env = append(os.Environ(),
		"COORDD_NODE_NAME="+n.name,
		"COORDD_NODE_DATA_DIR="+filepath.Join(n.dir, "data"),
		"COORDD_LISTEN_GRPC="+n.grpc(),
		"COORDD_LISTEN_PEER="+n.peer(),
		"COORDD_LISTEN_HTTP="+n.http(),
		"COORDD_LISTEN_ZOOKEEPER="+n.zookeeper(),
	)
	return cmd, nil
}

// signal sends sig to the running process. unwanted marks its end as expected.
func (n *devNode) signal(sig syscall.Signal, unwanted bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return
	}
	n.wanted = n.wanted && !unwanted
	n.paused = sig == syscall.SIGSTOP
	_ = n.process.Signal(sig) // fails only if it has just ended
}

// wait polls until the process has ended or the time is over.
func (n *devNode) wait(ctx context.Context) bool {
	for n.pid() != 0 {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return true
}
