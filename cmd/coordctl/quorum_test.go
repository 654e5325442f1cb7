package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// With two of three servers dead the message names the quorum, within the time
// limit, and --stale still reads.
func TestNoQuorumIsNamed(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, 3)
	ctl(t, "", "-e", c.Target(), "create", "/q", "x").want(t, exitOK, "/q\n", "")
	for i := 1; i < 3; i++ {
		if err := c.StopServer(i); err != nil {
			t.Fatal(err)
		}
	}
	const limit = 2 * time.Second // a quarter of it is for the diagnosis, also on a busy machine
	t.Run("commands", func(t *testing.T) {
		for _, line := range []string{"get /q", "set /q y", "create -e /q2", "ls -R /", "deleteall --yes /q", "sync", "bench set"} {
			for _, target := range []string{c.Target(), c.Endpoints()[0]} {
				t.Run(line, func(t *testing.T) {
					t.Parallel()
					noQuorum(t, limit, append([]string{"-e", target}, strings.Fields(line)...))
				})
			}
		}
	})
	if r := ctl(t, "", "-e", c.Target(), "--timeout", "1s", "--json", "set", "/q", "y"); !strings.Contains(r.stderr, `"outcome":"notDone"`) &&
		!strings.Contains(r.stderr, `"outcome":"maybeDone"`) {
		t.Errorf("no outcome: %s", r.stderr)
	}
	for _, more := range []string{"--for=500ms", "--for=500ms --count=1"} {
		ctl(t, "", append([]string{"-e", c.Target(), "watch", "/q"}, strings.Fields(more)...)...).want(t, exitUnreachable, "", "~no quorum: 1 of 3")
	}
	ctl(t, "", "-e", c.Target(), "--stale", "get", "/q").want(t, exitOK, "x", "~this may be out of date")
	r := ctl(t, "", "-e", c.Target(), "status", "--json")
	var status clusterStatus
	if err := json.Unmarshal([]byte(r.stdout), &status); err != nil {
		t.Fatal(err)
	}
	if r.code != exitUnhealthy || status.Healthy || len(status.Servers) != 3 || len(status.Unreachable) != 2 {
		t.Errorf("status: exit code %d\n%s", r.code, r.stdout)
	}
	r = ctl(t, "", "-e", c.Target(), "doctor")
	if r.code != exitUnhealthy || !strings.HasPrefix(r.stdout, "PROBLEM  no leader: ") || strings.Contains(r.stdout, "states") {
		t.Errorf("doctor: exit code %d\n%s", r.code, r.stdout)
	}
	r = ctl(t, "", "-e", c.Target(), "status")
	if !strings.Contains(r.stdout, "\nn1 is not ready: leader: no leader is known\n") {
		t.Errorf("status does not say why:\n%s", r.stdout)
	}
	began := time.Now()
	ctl(t, "", "-e", c.Target(), "wait", "ready", "--timeout", "200ms").want(t, exitTimeout, "", "~not ready within 200ms")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("wait ready --timeout 200ms took %s", took)
	}
	ctl(t, "", "-e", c.Target(), "--timeout", "1s", "lock", "/l", "true").want(t, exitCannotRun, "", "~no quorum: 1 of 3")
}

func noQuorum(t *testing.T, limit time.Duration, args []string) {
	t.Helper()
	began := time.Now()
	r := ctl(t, "", append(args, "--timeout", limit.String())...)
	if took := time.Since(began); took > 10*limit {
		t.Errorf("took %s", took)
	}
	if r.code != exitUnreachable || !strings.Contains(r.stderr, "no quorum: 1 of 3 servers answers (n1), 2 are needed; writes and normal reads wait\n") ||
		!strings.Contains(r.stderr, "hint: --stale reads what n1 has (up to zxid 0x") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
}

// status is well only when every listed server is, and names the leader.
func TestStatusFollowsTheServers(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, 3)
	check := func(code int) clusterStatus {
		var status clusterStatus
		eventually(t, "the status is as expected", func() bool {
			r := ctl(t, "", "-e", c.Endpoints()[0], "status", "--json")
			return r.code == code && json.Unmarshal([]byte(r.stdout), &status) == nil
		})
		return status
	}
	s := check(exitOK)
	if !strings.HasPrefix(s.Leader, "n") {
		t.Errorf("leader %q", s.Leader)
	}
	if err := c.StopServer(2); err != nil {
		t.Fatal(err)
	}
	check(exitUnhealthy)
	eventually(t, "n3 is shown as DOWN", func() bool {
		return strings.Contains(ctl(t, "", "-e", c.Endpoints()[0], "members").stdout, "DOWN")
	})
	eventually(t, "wait ready names n3", func() bool { // an election may come in between
		r := ctl(t, "", "-e", c.Endpoints()[0], "wait", "ready", "--for", "300ms")
		if r.code != exitTimeout {
			t.Errorf("wait ready: exit code %d\n%s", r.code, r.stderr)
		}
		return strings.Contains(r.stderr, "n3 is DOWN")
	})
	ctl(t, "", "-e", c.Endpoints()[0], "wait", "ready", "--node", "n1").want(t, exitOK, "", "coordctl: ready\n")
	if err := c.StartServer(2); err != nil {
		t.Fatal(err)
	}
	ctl(t, "", "-e", c.Endpoints()[0], "wait", "ready", "--stable", "200ms").want(t, exitOK, "", "coordctl: ready\n")
	check(exitOK)
}

// A script may start before its servers: wait ready waits for them.
func TestWaitReadyWaitsForServersThatStartLater(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, 1)
	if err := c.StopServer(0); err != nil {
		t.Fatal(err)
	}
	p := start(t, c, nil, "wait", "ready", "--for", "20s")
	time.Sleep(300 * time.Millisecond) // it finds nobody
	select {
	case <-p.done:
		t.Fatalf("it did not wait: exit code %d\n%s", p.code, p.stderr.String())
	default:
	}
	if err := c.StartServer(0); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != exitOK {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	ctl(t, "", "-e", c.Target(), "get", "/").want(t, exitOK, "", "")
}
