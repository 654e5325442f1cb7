package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/localcluster"
)

// exe is the test's own program, for commands that start it.
var exe = os.Args[0]

var interrupt = os.Interrupt

// envBeCoordctl makes the test's program behave as coordctl, so that tests can
// run it as a process of its own.
const envBeCoordctl = "COORDCTL_TEST_BE_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envBeCoordctl) == "1" {
		main()
		return
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // they wait most of the time
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "COORDCTL_") {
			os.Unsetenv(name)
		}
	}
	dir, err := os.MkdirTemp("", "coordctl-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	os.Setenv("COORDCTL_CONFIG", filepath.Join(dir, "contexts.yaml"))
	os.Setenv(envBeCoordctl, "1") // from here on: whatever runs this program means coordctl
	code := m.Run()
	if shared.cluster != nil {
		if err := shared.cluster.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// shared is a cluster of three servers for all tests that leave it as it is but
// for their own znodes.
var shared struct {
	once    sync.Once
	voting  sync.Once
	cluster *localcluster.Cluster
	err     error
}

func sharedCluster(t testing.TB) *localcluster.Cluster {
	t.Helper()
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		shared.cluster, shared.err = localcluster.Start(ctx, localcluster.Options{Servers: 3})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	shared.voting.Do(func() { allVote(t, shared.cluster) })
	return shared.cluster
}

// ownCluster is one that the test may harm.
func ownCluster(t testing.TB, servers int) *localcluster.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := localcluster.Start(ctx, localcluster.Options{Servers: servers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	allVote(t, c)
	return c
}

// allVote waits until every server has its vote, which is later than it is ready.
func allVote(t testing.TB, c *localcluster.Cluster) {
	t.Helper()
	if r := ctl(t, "", "-e", c.Target(), "wait", "ready"); r.code != exitOK {
		t.Fatalf("wait ready: exit code %d\n%s", r.code, r.stderr)
	}
}

// lockedBuffer is a buffer that several goroutines may write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// result is what a command line came to.
type result struct {
	stdout, stderr string
	code           int
}

// ctl runs a command line in this process, with text on standard input.
func ctl(t testing.TB, stdin string, args ...string) result {
	t.Helper()
	return ctlUntil(t, context.Background(), stdin, args...)
}

func ctlUntil(t testing.TB, ctx context.Context, stdin string, args ...string) result {
	t.Helper()
	var out, errs lockedBuffer
	code := run(ctx, args, strings.NewReader(stdin), &out, &errs)
	return result{out.String(), errs.String(), code}
}

// on runs a command line against the shared cluster.
func on(t testing.TB, stdin string, args ...string) result {
	t.Helper()
	return ctl(t, stdin, append([]string{"-e", sharedCluster(t).Target()}, args...)...)
}

// must is for steps that prepare something.
func must(t testing.TB, args ...string) string {
	t.Helper()
	r := on(t, "", args...)
	if r.code != exitOK {
		t.Fatalf("coordctl %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.stderr)
	}
	return r.stdout
}

// fresh removes what an earlier run of the test has left at a path.
func fresh(t testing.TB, path string) {
	t.Helper()
	if r := on(t, "", "deleteall", "--yes", path); r.code != exitOK && r.code != exitNotFound {
		t.Fatalf("deleteall %s: exit code %d\n%s", path, r.code, r.stderr)
	}
}

// want compares exit code and outputs; a text that begins with ~ needs only to
// be contained.
func (r result) want(t testing.TB, code int, stdout, stderr string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	for _, o := range []struct{ name, got, want string }{{"stdout", r.stdout, stdout}, {"stderr", r.stderr, stderr}} {
		part, contained := strings.CutPrefix(o.want, "~")
		if contained && !strings.Contains(o.got, part) || !contained && o.got != o.want {
			t.Errorf("%s is %q, want %q", o.name, o.got, o.want)
		}
	}
}

// process is a coordctl of its own.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr lockedBuffer
	done           chan struct{}
	code           int
}

// start runs coordctl as a process, against the cluster. Change may change the
// command before it starts.
func start(t testing.TB, c *localcluster.Cluster, change func(*exec.Cmd), args ...string) *process {
	t.Helper()
	p := &process{done: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0], args...)
	p.cmd.Env = append(os.Environ(), envBeCoordctl+"=1", "COORDCTL_ENDPOINTS="+c.Target())
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.WaitDelay = time.Second // a grandchild may have kept the pipes
	if change != nil {
		change(p.cmd)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the code says it
		p.code = p.cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // fails if it has ended
		<-p.done
	})
	return p
}

// wait returns the exit code, -1 for a signal.
func (p *process) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.done:
		return p.code
	case <-time.After(30 * time.Second):
		t.Fatalf("coordctl does not end\nstdout: %s\nstderr: %s", p.stdout.String(), p.stderr.String())
		return 0
	}
}

// eventually waits until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// dial is a client of the shared cluster, for what coordctl has no command for.
func dial(t testing.TB, opts ...client.Option) *client.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, sharedCluster(t).Target(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}
