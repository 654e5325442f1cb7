package test

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// missing skips a test for want of a program, with the reason. In CI a test that
// did not run is a failure.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed; make setup installs it", what)
	}
	t.Skipf("%s is not installed; make setup installs it", what)
}

// suite is a program that is a client of ours and prints "ok NAME" for each thing
// that works.
type suite struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	out  io.ReadCloser
	errs strings.Builder
	oks  []string
}

func startSuite(t testing.TB, limit time.Duration, name string, args ...string) *suite {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	s := &suite{t: t, name: name, cmd: exec.CommandContext(ctx, name, args...)}
	s.cmd.Dir = t.TempDir()
	s.cmd.WaitDelay = 5 * time.Second
	s.cmd.Stderr = &s.errs
	var err error
	if s.out, err = s.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// wait reads to the end and wants at least so many things to have worked.
func (s *suite) wait(oks int) {
	s.t.Helper()
	var other []string
	lines := bufio.NewScanner(s.out)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "ok "); ok {
			s.oks = append(s.oks, name)
		} else {
			other = append(other, lines.Text())
		}
	}
	if err := s.cmd.Wait(); err != nil || len(s.oks) < oks {
		if len(other) > 30 {
			other = other[len(other)-30:]
		}
		s.t.Errorf("%s: %v after %d of %d: %s\n%s\n%s", s.name, err, len(s.oks), oks, strings.Join(s.oks, ", "), strings.Join(other, "\n"), tail(s.errs.String(), 4000))
	}
}

// lockedText collects what a program prints while it runs.
type lockedText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// zkHosts is a connect string for ZooKeeper clients.
func (c *processes) zkHosts() string {
	var out []string
	for _, p := range c.nodes {
		out = append(out, p.zookeeper())
	}
	return strings.Join(out, ",")
}

// killInTurn kills a server at a time and starts it again, the leader first, for as
// long as a client works. It is the client's business whether it was connected
// there.
func (c *processes) killInTurn(rounds int, pause time.Duration) {
	c.t.Helper()
	for i := range rounds {
		p := c.nodes[i%len(c.nodes)]
		if i%2 == 0 {
			p = c.leader()
		}
		p.kill()
		time.Sleep(pause)
		p.start()
		poll(c.t, 30*time.Second, "ready again", p.ready)
		time.Sleep(pause)
	}
}

const kazooSuite = "clients/kazoo_suite.py"

// python is one that has kazoo: Debian's own, whatever else is on the path.
func python(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(name, "-c", "import kazoo").Run() == nil {
			return name
		}
	}
	missing(t, "kazoo (python3-kazoo)")
	return ""
}

// TestKazoo does with kazoo what its users do, unmodified.
func TestKazoo(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	py, script := python(t), absolute(t, kazooSuite)
	c := startProcesses(t, 3, "zookeeper: {words: ['*']}\n")
	startSuite(t, 3*time.Minute, py, script, c.zkHosts(), "basics").wait(6)
	startSuite(t, 3*time.Minute, py, script, c.zkHosts(), "recipes").wait(8)
	ride := startSuite(t, 3*time.Minute, py, script, c.zkHosts(), "ride", "15")
	time.Sleep(2 * time.Second) // it is about to connect
	c.killInTurn(3, time.Second)
	ride.wait(2)
}

// absolute is the path of a file beside the tests.
func absolute(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir + "/" + name
}
