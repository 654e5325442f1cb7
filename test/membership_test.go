package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
)

// newMixed is n servers of which the observers are listed as such in everybody's
// file. Each server's file lists only the first so many that lists says for its
// place, as the files of servers that were added later do.
func newMixed(t testing.TB, n int, lists []int, observers ...int) *processes {
	t.Helper()
	c := newProcesses(t, n, "autopilot: {remove_dead_after: 10m}\n")
	for i, p := range c.nodes {
		var peers, watching []string
		for j, other := range c.nodes[:lists[i]] {
			entry := fmt.Sprintf("%s=127.0.0.1:%d", other.name, other.base+1)
			if contains(observers, j) {
				watching = append(watching, entry)
			} else {
				peers = append(peers, entry)
			}
		}
		p.extraEnv = []string{
			"COORDD_CLUSTER_PEERS=" + strings.Join(peers, ","), "COORDD_CLUSTER_OBSERVERS=" + strings.Join(watching, ","),
		}
	}
	return c
}

func contains(list []int, n int) bool {
	for _, x := range list {
		if x == n {
			return true
		}
	}
	return false
}

// roles are the members as the leader sees them through one server: name=role.
func (p *process) roles() (map[string]coordpb.Member_Role, error) {
	st, err := p.status()
	if err != nil {
		return nil, err
	}
	if !st.MembersFromLeader {
		return nil, fmt.Errorf("%s has heard of no leader", p.name)
	}
	out := map[string]coordpb.Member_Role{}
	for _, m := range st.Members {
		if m.InContact && m.Ready {
			out[m.Name] = m.Role
		}
	}
	return out, nil
}

// waitVoters waits until exactly these servers vote and are well.
func (c *processes) waitVoters(at *process, limit time.Duration, want ...string) {
	c.t.Helper()
	poll(c.t, limit, fmt.Sprint("voters ", want), func() error {
		roles, err := at.roles()
		if err != nil {
			return err
		}
		voters := 0
		for _, r := range roles {
			if r == coordpb.Member_ROLE_LEADER || r == coordpb.Member_ROLE_VOTER {
				voters++
			}
		}
		for _, name := range want {
			if r := roles[name]; r != coordpb.Member_ROLE_LEADER && r != coordpb.Member_ROLE_VOTER {
				return fmt.Errorf("%s is %v; %v", name, r, roles)
			}
		}
		if voters != len(want) {
			return fmt.Errorf("%v", roles)
		}
		return nil
	})
}

// coordctl runs a command at some servers and returns its output and exit code.
func coordctl(t testing.TB, target string, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t, "coordctl"), append([]string{"-e", target}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatalf("coordctl %v: %v", args, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// wantRemoved waits until a server has ended because it was removed, and checks
// that its data is of no use any more.
func (p *process) wantRemoved() {
	p.c.t.Helper()
	for _, when := range []string{"when it was told", "when it was started again"} {
		if !p.Ended(30 * time.Second) {
			p.c.t.Fatalf("%s did not end %s", p.name, when)
		}
		if p.State().Success() {
			p.c.t.Errorf("%s ended with success %s", p.name, when)
		}
		text, err := os.ReadFile(p.log())
		if err != nil || !strings.Contains(tail(string(text), 2000), "to let it join again as a new server") {
			p.c.t.Errorf("%s does not say why it ended: %v\n%s", p.name, err, tail(string(text), 2000))
		}
		if when == "when it was told" {
			p.start()
		}
	}
}

// From one server to three, to five, and back to three, as docs/ops.md says, with
// clients that write and hold sessions all the time.
func TestClusterGrowsAndShrinksWithoutAnErrorAtAClient(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	c := newMixed(t, 5, []int{1, 3, 3, 5, 5})
	c.nodes[0].start()
	if out, code := coordctl(t, c.nodes[0].grpc(), "wait", "ready", "--for", "30s"); code != 0 {
		t.Fatalf("wait ready: %s", out)
	}
	load := startCounters(t, c.endpoints(), 4)
	for _, group := range [][]int{{1, 2}, {3, 4}} {
		for _, i := range group {
			c.nodes[i].start()
		}
		for _, i := range group {
			grown := opsLine(t, "Grow", "coordctl wait ready --node n4 --stable 2s --for 2m", "n4", c.nodes[i].name)
			if out, code := coordctl(t, c.target(), grown...); code != 0 {
				t.Fatalf("wait for %s: %s", c.nodes[i].name, out)
			}
		}
	}
	c.waitVoters(c.nodes[0], time.Minute, "n1", "n2", "n3", "n4", "n5")
	if out, code := coordctl(t, c.target(), opsLine(t, "Grow", "coordctl members")...); code != 0 || strings.Count(out, "voter")+strings.Count(out, "leader") != 5 {
		t.Errorf("members: exit code %d: %s", code, out)
	}
	load.waitProgress(20 * time.Second)
	for _, i := range []int{4, 3} {
		name := c.nodes[i].name
		if out, code := coordctl(t, c.target(), opsLine(t, "Shrink", "coordctl members remove n5 --dry-run", "n5", name)...); code != 0 || !strings.Contains(out, "would") {
			t.Errorf("members remove --dry-run: exit code %d: %s", code, out)
		}
		line := opsLine(t, "Shrink", "coordctl members remove n5 --yes", "n5", name)
		if out, code := coordctl(t, c.target(), line...); code != 0 || !strings.HasPrefix(out, "removed "+c.nodes[i].name+"~") {
			t.Fatalf("members remove: exit code %d: %s", code, out)
		}
		c.nodes[i].wantRemoved()
	}
	c.waitVoters(c.nodes[0], time.Minute, "n1", "n2", "n3")
	load.waitProgress(20 * time.Second)
	load.stop()
	c.sameDigests()
	// All start again with the files that they have, which list one, three and three.
	for _, p := range c.nodes[:3] {
		p.kill()
	}
	for _, p := range c.nodes[:3] {
		p.start()
	}
	c.waitVoters(c.nodes[0], time.Minute, "n1", "n2", "n3")
}

func TestDeadServerIsReplacedAsThePageSays(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	c := newMixed(t, 4, []int{3, 3, 3, 4})
	for _, p := range c.nodes[:3] {
		p.start()
	}
	c.waitVoters(c.nodes[0], time.Minute, "n1", "n2", "n3")
	load := startCounters(t, c.endpoints()[:3], 2)
	c.nodes[2].kill()
	poll(t, 20*time.Second, "n3 is shown as dead", func() error {
		out, _ := coordctl(t, c.target(), opsLine(t, "Replace a server", "coordctl members")...)
		for _, line := range strings.Split(out, "\n") {
			if f := strings.Fields(line); len(f) > 3 && f[0] == "n3" && f[1] == "voter" && f[2] == "DOWN" && strings.Contains(line, "connection refused") && strings.HasSuffix(line, "; 1 more failure stops writes") {
				return nil
			}
		}
		return fmt.Errorf("%s", out)
	})
	// What would stop the cluster is refused with the numbers, and nothing is asked.
	out, code := coordctl(t, c.target(), "members", "remove", "n2", "--yes")
	if code != 4 || !strings.Contains(out, "3 voters, 2 of them alive: without n2, 1 of 2 would be alive, and 2 are needed") {
		t.Errorf("remove a server that is needed: exit code %d: %s", code, out)
	}
	c.nodes[3].start()
	if out, code := coordctl(t, c.target(), opsLine(t, "Replace a server", "coordctl wait ready --node n4 --for 2m")...); code != 0 {
		t.Fatalf("the new one: %s", out)
	}
	if out, code := coordctl(t, c.target(), opsLine(t, "Replace a server", "coordctl members remove n3 --yes")...); code != 0 {
		t.Fatalf("the dead one: %s", out)
	}
	c.waitVoters(c.nodes[0], time.Minute, "n1", "n2", "n4")
	c.nodes[2].start()
	c.nodes[2].wantRemoved()
	load.waitProgress(20 * time.Second)
	load.stop()
}

func TestServerGetsAnotherAddressAsThePageSays(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	c := newMixed(t, 3, []int{3, 3, 3})
	for _, p := range c.nodes {
		p.start()
	}
	c.waitVoters(c.nodes[0], time.Minute, "n1", "n2", "n3")
	load := startCounters(t, c.endpoints()[:2], 2)
	moved := c.nodes[2]
	moved.stop()
	old := fmt.Sprintf("n3=127.0.0.1:%d", moved.base+1)
	elsewhere := fmt.Sprintf("n3=127.0.0.1:%d", moved.base+7)
	moved.extraEnv[0] = strings.Replace(moved.extraEnv[0], old, elsewhere, 1)
	moved.start()
	if out, code := coordctl(t, c.target(), opsLine(t, "Change an address", "coordctl wait ready --node n3 --stable 2s --for 2m")...); code != 0 {
		t.Fatalf("after the move: %s", out)
	}
	// The others restart with their old files, and n3 is needed for each write.
	for _, p := range c.nodes[:2] {
		p.stop()
		load.waitProgress(30 * time.Second)
		p.start()
		c.waitVoters(moved, time.Minute, "n1", "n2", "n3")
	}
	load.stop()
}

func TestObserversServeClientsAndVoteForNothing(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	c := newMixed(t, 4, []int{4, 4, 4, 4}, 3)
	for _, p := range c.nodes {
		p.start()
	}
	c.waitVoters(c.nodes[0], time.Minute, "n1", "n2", "n3")
	watching := c.nodes[3]
	poll(t, 30*time.Second, "n4 observes", func() error {
		roles, err := watching.roles()
		if err == nil && roles["n4"] != coordpb.Member_ROLE_OBSERVER {
			err = fmt.Errorf("%v", roles)
		}
		return err
	})
	if out, code := coordctl(t, watching.grpc(), "status"); code != 0 || !strings.Contains(out, "3 of 3 servers, can lose 1") || !strings.Contains(out, "observer") {
		t.Errorf("status: exit code %d: %s", code, out)
	}
	load := startCounters(t, []string{watching.grpc()}, 2)
	w, err := client.Dial(t.Context(), watching.grpc())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if n, err := w.Get(t.Context(), "/counter-0"); err != nil || n.Stat.Version < 0 {
		t.Errorf("a linearizable read: %v", err)
	}
	lead := c.leader()
	lead.kill() // writes of sessions at the observer find the next leader
	load.waitProgress(30 * time.Second)
	lead.start()
	c.waitVoters(watching, time.Minute, "n1", "n2", "n3")
	load.stop()
	want := fmt.Sprintf("server.4=127.0.0.1:%d:%d:observer;", watching.base+1, watching.base+1)
	poll(t, 30*time.Second, "the next leader has heard of all ports", func() error {
		if got := zkTextOf(t, c.nodes[0]); !strings.Contains(got, want) {
			return fmt.Errorf("/zookeeper/config: %s", got)
		}
		return nil
	})
}

// zkTextOf is /zookeeper/config at one server.
func zkTextOf(t testing.TB, p *process) string {
	t.Helper()
	c, err := client.Dial(t.Context(), p.grpc())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n, err := c.Get(t.Context(), "/zookeeper/config")
	if err != nil {
		t.Fatal(err)
	}
	return string(n.Data)
}

// strimzi-kafka-operator#1001: a rolling restart went on although a server was not
// ready, until the quorum was gone. As the page on upgrades says, the wait between
// two servers stops it.
func TestRollingRestartStopsAtAServerThatIsNotReady(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	load := startCounters(t, c.endpoints(), 2)
	broken := c.nodes[1]
	broken.extraEnv = []string{"COORDD_RAFT_LOG_STORE=boltdb"} // its data is in the other store
	roll := func() (restarted []string) {
		for _, p := range c.nodes {
			p.signal(syscall.SIGTERM)
			<-p.Done()
			p.start()
			restarted = append(restarted, p.name)
			if out, code := coordctl(t, c.target(), "wait", "ready", "--node", p.name, "--stable", "1s", "--for", "20s"); code != 0 {
				if code != 7 || !strings.Contains(out, p.name+" is DOWN") {
					t.Errorf("wait ready: exit code %d: %s", code, out)
				}
				return restarted
			}
		}
		return restarted
	}
	if got := roll(); len(got) != 2 {
		t.Fatalf("%v were restarted, though n2 cannot start", got)
	}
	load.waitProgress(20 * time.Second)
	broken.extraEnv = nil
	broken.start()
	c.waitVoters(c.nodes[0], time.Minute, "n1", "n2", "n3")
	if got := roll(); len(got) != 3 {
		t.Errorf("only %v were restarted", got)
	}
	load.stop()
}
