package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
)

// Flags win over the environment, that over the context, that over the default.
func TestWhereSettingsComeFrom(t *testing.T) {
	t.Setenv("COORDCTL_CONFIG", filepath.Join(t.TempDir(), "contexts.yaml"))
	tries := func(args ...string) string {
		t.Helper()
		r := ctl(t, "", append(args, "get", "/x")...)
		if r.code != exitUnreachable {
			t.Fatalf("exit code %d\n%s", r.code, r.stderr)
		}
		return r.stderr
	}
	byContext, byOther, byEnv, byFlag := closedPort(t), closedPort(t), closedPort(t), closedPort(t)
	expect := func(want string, got string) {
		t.Helper()
		if !strings.Contains(got, "\n  "+want+" ") {
			t.Errorf("want %s to be tried:\n%s", want, got)
		}
	}
	if target, err := newEnv(nil, nil, nil).resolve(); err != nil || target.Endpoints[0] != "127.0.0.1:7420" {
		t.Errorf("default %+v, %v", target, err)
	}
	ctl(t, "", "context", "add", "first", "-e", byContext).want(t, exitOK, "", "")
	ctl(t, "", "context", "add", "other", "-e", byOther).want(t, exitOK, "", "")
	expect(byContext, tries())
	expect(byOther, tries("--context", "other"))
	t.Setenv("COORDCTL_CONTEXT", "other")
	expect(byOther, tries())
	t.Setenv("COORDCTL_ENDPOINTS", byEnv+",")
	expect(byEnv, tries())
	expect(byFlag, tries("-e", byFlag))
	expect(byFlag, tries("--endpoints", byFlag))
	t.Setenv("COORDCTL_OUTPUT", "json")
	if out := tries(); !strings.HasPrefix(out, `{"error":`) {
		t.Errorf("COORDCTL_OUTPUT has no effect: %s", out)
	}
	t.Setenv("COORDCTL_TIMEOUT", "soon")
	ctl(t, "", "get", "/x").want(t, exitUsage, "", "~COORDCTL_TIMEOUT")
}

// create -e leaves its session to expire and says so; the znode goes by itself.
func TestEphemeralIsLeftToExpire(t *testing.T) {
	t.Parallel()
	fresh(t, "/eph")
	must(t, "create", "/eph")
	p := start(t, sharedCluster(t), nil, "create", "-s", "-e", "--session-timeout", "2s", "/eph/e-", "x")
	if code := p.wait(t); code != exitOK || p.stdout.String() != "/eph/e-0000000000\n" {
		t.Fatalf("exit code %d, stdout %q\n%s", code, p.stdout.String(), p.stderr.String())
	}
	if !strings.Contains(p.stderr.String(), "is left to expire: the znode goes within about 2s (--hold keeps it)") {
		t.Errorf("stderr %q", p.stderr.String())
	}
	on(t, "", "get", "/eph/e-0000000000").want(t, exitOK, "x", "")
	eventually(t, "the znode has gone", func() bool { return must(t, "ls", "/eph") == "" })
	on(t, "", "create", "-e", "-p", "/eph/e/child/of").want(t, exitOK, "/eph/e/child/of\n", "~left to expire")
}

// Locks of other clients are listed, and a mix that does not exclude each other
// is warned about.
func TestForeignLocks(t *testing.T) {
	t.Parallel()
	fresh(t, "/foreign")
	must(t, "create", "-p", "/foreign/kazoo")
	must(t, "create", "/foreign/mixed")
	must(t, "create", "/foreign/plain")
	must(t, "create", "-s", "/foreign/plain/no-lock-")
	c := dial(t, client.WithSessionName("kazoo client"))
	for _, n := range []struct{ path, data string }{
		{"/foreign/kazoo/0123456789abcdef0123456789abcdef__lock__", "host-a"},
		{"/foreign/mixed/_c_00000000-0000-0000-0000-000000000000-lock-", "10.0.0.1"},
		{"/foreign/mixed/0123456789abcdef0123456789abcdef__lock__", "host-b"},
	} {
		if _, err := c.Create(t.Context(), n.path, []byte(n.data), client.WithEphemeral(), client.WithSequential()); err != nil {
			t.Fatal(err)
		}
	}
	r := on(t, "", "locks", "/foreign", "--no-headers")
	if r.code != exitOK || !strings.Contains(r.stdout, "/foreign/kazoo  mutex  (kazoo) host-a  ") || !strings.Contains(r.stdout, "/foreign/mixed  mutex  10.0.0.1  ") ||
		strings.Contains(r.stdout, "plain") {
		t.Errorf("exit code %d\n%s", r.code, r.stdout)
	}
	if !strings.Contains(r.stderr, "WARNING: /foreign/mixed: kazoo clients share this lock with others") {
		t.Errorf("stderr:\n%s", r.stderr)
	}
	on(t, "", "locks", "show", "/foreign/mixed", "-o", "wide").want(t, exitOK, "~  1  (kazoo) host-b", "~WARNING")
}

// Paths are completed from the server, quietly.
func TestCompletion(t *testing.T) {
	t.Parallel()
	fresh(t, "/completion")
	must(t, "create", "-p", "/completion/one/deep")
	must(t, "create", "/completion/other")
	for _, endpoint := range sharedCluster(t).Endpoints() { // a completion asks no leader
		ctl(t, "", "-e", endpoint, "sync").want(t, exitOK, "~0x", "")
	}
	on(t, "", "__complete", "get", "/completion/o").want(t, exitOK, "~/completion/one\n/completion/other\n", "~")
	on(t, "", "__complete", "ls", "/completion/one/").want(t, exitOK, "~/completion/one/deep\n", "~")
	on(t, "", "__complete", "ls", "/completion/nope/").want(t, exitOK, "~:6\n", "~")
	ctl(t, "", "-e", closedPort(t), "__complete", "ls", "/").want(t, exitOK, "~:6\n", "~")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		ctl(t, "", "completion", shell).want(t, exitOK, "~coordctl", "")
	}
}

// A request that no server answers ends at its limit, with exit code 7 or what
// is known to be wrong.
func TestTimeLimitOfOneRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(nil, nil, nil)
		e.timeout = 200 * time.Millisecond
		p := e.pace(t.Context())
		defer p.stop()
		var last time.Time
		for range 5 { // together longer than the limit
			time.Sleep(140 * time.Millisecond)
			p.answered()
			last = time.Now()
		}
		if p.ctx.Err() != nil {
			t.Fatal("answers do not give the next request its time")
		}
		<-p.ctx.Done()
		if took := time.Since(last); took > e.timeout {
			t.Errorf("it ended after %s", took)
		}
		if _, code := classify(p.result(p.ctx.Err())); code != exitTimeout {
			t.Errorf("exit code %d", code)
		}
	})
}

// The program itself returns the exit code.
func TestProgramExitCode(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(exe, "get", "no-slash")
	cmd.Env = append(os.Environ(), envBeCoordctl+"=1")
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != exitUsage {
		t.Errorf("%v", err)
	}
}
