package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/test/internal/child"
	"github.com/coordd/coord/test/internal/freeport"
	"github.com/coordd/coord/test/internal/smalldisk"
)

func TestMain(m *testing.M) {
	if err := smalldisk.Private(); err != nil {
		fmt.Println(err) // the tests will say that they cannot mount
	}
	code := m.Run()
	child.Clean()
	os.Exit(code)
}

// program is the path of coordd or coordctl.
func program(t testing.TB, name string) string {
	t.Helper()
	return child.Program(t, name)
}

// processes is a cluster of real servers on loopback.
type processes struct {
	t     testing.TB
	dir   string
	conf  string
	nodes []*process
	creds credentials.TransportCredentials // of the operator; nil without TLS
}

// process is one server. It may be stopped and started again.
type process struct {
	child.Process
	c        *processes
	name     string
	base     int
	extraEnv []string
	binary   string // "": coordd as it is
}

// startProcesses runs n servers and waits until they are ready. extra is added
// to the configuration file. The servers end with the test.
func startProcesses(t testing.TB, n int, extra string) *processes {
	t.Helper()
	c := newProcesses(t, n, extra)
	for _, p := range c.nodes {
		p.start()
	}
	c.waitReady(30 * time.Second)
	return c
}

func newProcesses(t testing.TB, n int, extra string) *processes {
	t.Helper()
	c := &processes{t: t, dir: t.TempDir()}
	c.conf = filepath.Join(c.dir, "coordd.yaml")
	base := freeport.Range(t, 10*n)
	var peers []string
	for i := range n {
		p := &process{c: c, name: fmt.Sprintf("n%d", i+1), base: base + 10*i}
		c.nodes = append(c.nodes, p)
		peers = append(peers, fmt.Sprintf("%s=127.0.0.1:%d", p.name, p.base+1))
	}
	text := "cluster:\n  name: test\n  bootstrap: auto\n  peers: [" + strings.Join(peers, ", ") + "]\n" + extra
	if err := os.WriteFile(c.conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.end)
	return c
}

func (p *process) grpc() string      { return fmt.Sprintf("127.0.0.1:%d", p.base) }
func (p *process) http() string      { return fmt.Sprintf("127.0.0.1:%d", p.base+2) }
func (p *process) zookeeper() string { return fmt.Sprintf("127.0.0.1:%d", p.base+3) }

func (p *process) log() string { return filepath.Join(p.c.dir, p.name+".log") }

// start runs the server; it does not wait until it serves.
func (p *process) start() {
	p.c.t.Helper()
	binary := p.binary
	if binary == "" {
		binary = program(p.c.t, "coordd")
	}
	cmd := exec.Command(binary, "run", "--config", p.c.conf)
	cmd.Env = append(os.Environ(),
		"COORDD_NODE_NAME="+p.name,
		"COORDD_NODE_DATA_DIR="+p.dataDir(),
		"COORDD_LISTEN_GRPC="+p.grpc(),
		"COORDD_LISTEN_HTTP="+p.http(),
		"COORDD_LISTEN_ZOOKEEPER="+p.zookeeper(),
	)
	cmd.Env = append(cmd.Env, p.extraEnv...)
	if err := p.Start(cmd, p.log(), nil); err != nil {
		p.c.t.Fatal(err)
	}
}

func (p *process) dataDir() string { return filepath.Join(p.c.dir, p.name) }

func (p *process) running() bool { return p.Running() }

// signal sends sig; a server that has ended is left alone.
func (p *process) signal(sig syscall.Signal) { p.Signal(sig) }

// kill ends the server as a power cut ends it, and waits for the end.
func (p *process) kill() { p.Kill() }

// stop asks the server to end and returns how long it took.
func (p *process) stop() time.Duration {
	p.c.t.Helper()
	start := time.Now()
	p.signal(syscall.SIGTERM)
	if !p.Ended(20 * time.Second) {
		p.kill()
		p.c.t.Errorf("%s did not stop within 20 s", p.name)
	}
	return time.Since(start)
}

// end stops all servers and, if the test failed, shows where it went wrong.
func (c *processes) end() {
	for _, p := range c.nodes {
		p.signal(syscall.SIGCONT)
		if p.running() {
			p.kill()
		}
	}
	for _, p := range c.nodes {
		text, _ := os.ReadFile(p.log())
		if i := strings.Index(string(text), "panic:"); i >= 0 {
			c.t.Errorf("%s panicked:\n%s", p.name, text[i:min(len(text), i+4000)])
		}
		if c.t.Failed() {
			c.t.Logf("end of the log of %s:\n%s", p.name, text[max(0, len(text)-3000):])
		}
	}
}

func (c *processes) endpoints() []string {
	var out []string
	for _, p := range c.nodes {
		out = append(out, p.grpc())
	}
	return out
}

func (c *processes) target() string { return strings.Join(c.endpoints(), ",") }

// credentials are those of the operator, who may look at the servers.
func (c *processes) credentials() credentials.TransportCredentials {
	if c.creds == nil {
		return insecure.NewCredentials()
	}
	return c.creds
}

// status asks one server how it is.
func (p *process) status() (*coordpb.StatusReply, error) {
	conn, err := grpc.NewClient(p.grpc(), grpc.WithTransportCredentials(p.c.credentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return coordpb.NewAdminClient(conn).Status(ctx, &coordpb.StatusRequest{})
}

// waitReady waits until every server of the list votes, and every running one
// is ready.
func (c *processes) waitReady(limit time.Duration) {
	c.t.Helper()
	for _, p := range c.nodes {
		if p.running() {
			poll(c.t, limit, "ready "+p.name, p.ready)
		}
	}
}

func (p *process) ready() error {
	st, err := p.status()
	if err != nil {
		return err
	}
	return child.Ready(st, len(p.c.nodes))
}

// leader waits for a server that leads and returns it.
func (c *processes) leader() *process {
	c.t.Helper()
	var found *process
	poll(c.t, 20*time.Second, "leader", func() error {
		for _, p := range c.nodes {
			if !p.running() {
				continue
			}
			if st, err := p.status(); err == nil && st.Leader == p.name {
				found = p
				return nil
			}
		}
		return errors.New("nobody leads")
	})
	return found
}

// follower is some server that does not lead.
func (c *processes) follower() *process {
	c.t.Helper()
	lead := c.leader()
	for _, p := range c.nodes {
		if p != lead && p.running() {
			return p
		}
	}
	c.t.Fatal("no follower")
	return nil
}

// sameDigests waits until all running servers have applied the same and say
// the same digest of their state.
func (c *processes) sameDigests() {
	c.t.Helper()
	poll(c.t, 20*time.Second, "equal digests", func() error {
		type state struct{ index, digest uint64 }
		seen := map[string]state{}
		for _, p := range c.nodes {
			if !p.running() {
				continue
			}
			st, err := p.status()
			if err != nil {
				return err
			}
			seen[p.name] = state{st.DigestIndex, st.Digest}
		}
		var first *state
		for _, s := range seen {
			if first == nil {
				first = &s
			}
			if s != *first {
				return fmt.Errorf("states differ: %v", seen)
			}
		}
		return nil
	})
}

// patience is how many times longer a wait may last than on a machine that has nothing
// else to do. Waits end what hangs; where the time is what is promised, the test
// measures it.
const patience = 4

// poll calls f until it returns nil, and fails the test with its last error
// once patience times the limit is over.
func poll(t testing.TB, limit time.Duration, what string, f func() error) {
	t.Helper()
	child.Poll(t, patience*limit, what, f)
}
