package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
	"github.com/coordd/coord/test/internal/child"
)

const javaDir = "/usr/share/java"

// curator compiles the suite once for the whole run and returns what java needs to
// run it.
var curatorOnce struct {
	sync.Mutex
	args []string
	err  error
}

func curator(t testing.TB) []string {
	t.Helper()
	for _, name := range []string{"java", "javac"} {
		if _, err := exec.LookPath(name); err != nil {
			missing(t, name+" (default-jdk-headless)")
		}
	}
	jars := []string{}
	for _, name := range []string{"curator-client", "curator-framework", "curator-recipes", "curator-x-discovery", "zookeeper", "zookeeper-jute", "guava", "slf4j-api", "slf4j-nop", "jackson-core", "jackson-databind", "jackson-annotations"} {
		jar := filepath.Join(javaDir, name+".jar")
		if _, err := os.Stat(jar); err != nil {
			missing(t, name+" (libcurator-recipes-java, libcurator-discovery-java)")
		}
		jars = append(jars, jar)
	}
	more, _ := filepath.Glob(filepath.Join(javaDir, "netty*.jar"))
	classpath := strings.Join(append(jars, more...), ":")
	curatorOnce.Lock()
	defer curatorOnce.Unlock()
	if curatorOnce.args == nil && curatorOnce.err == nil {
		dir := filepath.Join(child.Dir(t), "curator")
		out, err := exec.Command("javac", "-nowarn", "-cp", classpath, "-d", dir, absolute(t, "clients/CuratorSuite.java")).CombinedOutput()
		if err != nil {
			curatorOnce.err = fmt.Errorf("javac: %w\n%s", err, out)
		}
		curatorOnce.args = []string{"-Xmx256m", "-cp", classpath + ":" + dir, "CuratorSuite"}
	}
	if curatorOnce.err != nil {
		t.Fatal(curatorOnce.err)
	}
	return curatorOnce.args
}

// TestCurator does with Curator what its users do, unmodified.
func TestCurator(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	args := curator(t)
	c := startProcesses(t, 3, "")
	startSuite(t, 4*time.Minute, "java", append(args, c.zkHosts(), "recipes")...).wait(13)
	ride := startSuite(t, 3*time.Minute, "java", append(args, c.zkHosts(), "ride", "15")...)
	time.Sleep(3 * time.Second) // it is about to connect
	c.killInTurn(3, time.Second)
	ride.wait(1)
}

// TestOneLockForJavaAndGo: Curator and recipes/lock exclude each other, and an
// operator sees both.
func TestOneLockForJavaAndGo(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	args := curator(t)
	p := startProcesses(t, 3, "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, p.target())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := lock.New(c, "/shared/lock", lock.Owner("in Go"))
	h, err := m.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	java := exec.CommandContext(ctx, "java", append(args, p.zkHosts(), "lock", "/shared/lock")...)
	in, err := java.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs lockedText
	java.Stdout, java.Stderr = &out, &errs
	if err := java.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = java.Wait() }()
	poll(t, 30*time.Second, "Java stands in line", func() error {
		info, err := m.Inspect(ctx)
		if err != nil || len(info.Waiters) != 1 {
			return fmt.Errorf("%+v, %w", info, err)
		}
		return nil
	})
	if strings.Contains(out.String(), "locked") {
		t.Fatal("Java has the lock beside Go")
	}
	shown, err := exec.Command(program(t, "coordctl"), "-e", p.target(), "locks", "show", "/shared/lock").CombinedOutput()
	if err != nil || !strings.Contains(string(shown), "in Go") || strings.Contains(string(shown), "WARN") {
		t.Errorf("coordctl locks show: %v\n%s", err, shown)
	}
	if err := h.Release(ctx); err != nil {
		t.Fatal(err)
	}
	poll(t, 30*time.Second, "Java has the lock", func() error {
		if !strings.Contains(out.String(), "ok locked") {
			return fmt.Errorf("%s %s", out.String(), errs.String())
		}
		return nil
	})
	if _, err := m.TryAcquire(ctx); !errors.Is(err, lock.ErrBusy) {
		t.Errorf("a try while Java holds it: %v", err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := m.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if again.FencingToken() <= h.FencingToken() {
		t.Errorf("token %s after %s", again.FencingToken(), h.FencingToken())
	}
	if err := again.Release(ctx); err != nil {
		t.Error(err)
	}
}
