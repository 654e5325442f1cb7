package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/lock"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/zxid"
)

// operator runs the command lines of docs/ops.md against a cluster.
type operator struct{ c *processes }

// ctl runs a coordctl line that stands in a section of docs/ops.md, see opsLine.
// more is added to it.
func (o *operator) ctl(section, line string, more []string, differs ...string) []byte {
	t := o.c.t
	t.Helper()
	args := append([]string{"-e", o.c.target(), "--timeout", "30s"}, opsLine(t, section, line, differs...)...)
	return o.must(append(args, more...)...)
}

func (o *operator) must(args ...string) []byte {
	t := o.c.t
	t.Helper()
	cmd := exec.Command(program(t, "coordctl"), args...)
	out, err := cmd.Output()
	if err != nil {
		var e *exec.ExitError
		_ = errors.As(err, &e)
		t.Fatalf("coordctl %v: %v\n%s%s", args, err, out, e.Stderr)
	}
	return out
}

// lockWorker takes a lock again and again, with a new session when its own ends.
type lockWorker struct {
	mu      sync.Mutex
	grants  []lockGrant
	ends    []client.Reason // of its sessions
	strange []error
}

type lockGrant struct {
	token        fence.Token
	asked, given time.Time
}

func (w *lockWorker) run(ctx context.Context, c *processes) {
	for ctx.Err() == nil {
		cl, err := client.Dial(ctx, c.target(), quiet)
		if err != nil {
			w.note(ctx, err)
			continue
		}
		w.live(ctx, cl)
		_ = cl.Close() // its session may have ended
	}
}

// live works until its session ends.
func (w *lockWorker) live(ctx context.Context, cl *client.Client) {
	m := lock.New(cl, "/locks/restored")
	for ctx.Err() == nil {
		asked := time.Now()
		h, err := m.Acquire(ctx)
		given := time.Now()
		if err == nil {
			w.mu.Lock()
			w.grants = append(w.grants, lockGrant{h.FencingToken(), asked, given})
			w.mu.Unlock()
			_ = h.Release(ctx) // the end of the session is seen below
		}
		if s := cl.Session().Context(); s.Err() != nil {
			var end *client.SessionError
			if !errors.As(context.Cause(s), &end) {
				w.note(ctx, context.Cause(s))
				return
			}
			w.mu.Lock()
			w.ends = append(w.ends, end.Reason)
			w.mu.Unlock()
			return
		}
		if err != nil {
			w.note(ctx, err)
		}
	}
}

func (w *lockWorker) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.strange = append(w.strange, err)
}

// state is how many grants there were, and the largest token.
func (w *lockWorker) state() (grants int, largest fence.Token) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.grants {
		largest = max(largest, g.token)
	}
	return len(w.grants), largest
}

// A backup of before is restored while clients of both ports work: each session
// hears why it ends, every one comes back, and no token is ever given that is not
// above all before.
func TestRestoreWhileClientsRun(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	o := &operator{c}
	nightly := filepath.Join(t.TempDir(), "nightly.cbk")
	admin := dial(t, c.endpoints())
	for path, data := range map[string]string{"/kept": "as it was", "/empty": "", "/locks": ""} {
		if _, err := admin.Create(t.Context(), path, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}

	const workers = 6
	ctx, cancel := context.WithCancel(t.Context())
	all := make([]*lockWorker, workers)
	var wg sync.WaitGroup
	for i := range all {
		all[i] = &lockWorker{}
		wg.Go(func() { all[i].run(ctx, c) })
	}
	defer wg.Wait()
	defer cancel()
	more := func(what string) {
		before := make([]int, workers)
		for i, w := range all {
			before[i], _ = w.state()
		}
		poll(t, time.Minute, what, func() error {
			for i, w := range all {
				if n, _ := w.state(); n < before[i]+3 {
					return fmt.Errorf("worker %d was granted the lock %d times since", i, n-before[i])
				}
			}
			return nil
		})
	}
	more("work before the backup")
	o.ctl("Back up", "coordctl backup save nightly.cbk", nil, "nightly.cbk", nightly)
	o.ctl("Back up", "coordctl backup verify nightly.cbk", nil, "nightly.cbk", nightly)

	leader := c.leader()
	leader.kill() // a leadership more than the backup knows of
	leader.start()
	more("work after the backup")
	if _, err := admin.Set(t.Context(), "/kept", []byte("newer"), client.AnyVersion); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Create(t.Context(), "/later", nil); err != nil {
		t.Fatal(err)
	}
	c.waitReady(time.Minute)
	zk := zkOpen(t, c.follower().zookeeper())
	zk.must(zkCreate("/zk-ephemeral", "", wire.FlagEphemeral))

	var largest fence.Token
	for _, w := range all {
		_, n := w.state()
		largest = max(largest, n)
	}
	var done struct{ Zxid string }
	began := time.Now()
	restored := o.ctl("Restore", "coordctl backup restore nightly.cbk", []string{"--yes", "--json"}, "nightly.cbk", nightly)
	if err := json.Unmarshal(restored, &done); err != nil {
		t.Fatal(err)
	}
	ended := time.Now()
	z, err := zxid.Parse(done.Zxid)
	if err != nil || uint64(z) <= uint64(largest) {
		t.Errorf("the restore is transaction %s, a token of before is %s, %v", done.Zxid, largest, err)
	}
	more("work after the restore")
	cancel()
	wg.Wait()
	checkRestored(t, all, began, ended, z)

	zk.closed("the session ended with the restore")
	again := zkDial(t, c.follower().zookeeper())
	if p := again.hello(&wire.ConnectRequest{Timeout: zk.timeout, Session: zk.session, Password: zk.password}); p.Session != 0 {
		t.Errorf("session %s of before the restore lives on the ZooKeeper port", p.Session)
	}
	zk = zkOpen(t, c.follower().zookeeper())
	zk.wants(wire.NoNode, zkRead(wire.GetData, "/zk-ephemeral", false))
	if r := zk.must(zkRead(wire.GetData, "/kept", false)); string(r.Data) != "as it was" {
		t.Errorf("/kept has the data %q on the ZooKeeper port", r.Data)
	}
	if ok, err := exists(t, c, "/later"); err != nil || ok {
		t.Errorf("/later, made after the backup: %v, %v", ok, err)
	}
	c.sameDigests()
}

// exists asks with a session of its own: the one of before has ended.
func exists(t *testing.T, c *processes, path string) (bool, error) {
	t.Helper()
	_, ok, err := dial(t, c.endpoints()).Exists(t.Context(), path)
	return ok, err
}

// checkRestored looks at what the workers have seen of a restore that was asked
// for at began, answered at ended, and was transaction z.
func checkRestored(t *testing.T, all []*lockWorker, began, ended time.Time, z zxid.ID) {
	t.Helper()
	for i, w := range all {
		if len(w.strange) > 0 {
			t.Errorf("worker %d, while its session lived: %v", i, w.strange)
		}
		if len(w.ends) != 1 || w.ends[0] != client.Restore {
			t.Errorf("worker %d: its sessions ended as %q", i, w.ends)
		}
		for _, g := range w.grants {
			switch {
			case g.given.Before(began) && uint64(g.token) >= uint64(z):
				t.Errorf("worker %d had token %s before the restore, which is transaction %s", i, g.token, z)
			case g.asked.After(ended) && uint64(g.token) <= uint64(z):
				t.Errorf("worker %d got token %s after the restore, which is transaction %s", i, g.token, z)
			}
		}
	}
}

// A restore whose server dies is carried on at another one, under the same id; the
// leader dying is a delay. Whatever happens it is done once, on all servers.
func TestRestoreOutlivesItsServerAndTheLeader(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	o := &operator{c}
	file := filepath.Join(t.TempDir(), "large.cbk")
	admin := dial(t, c.endpoints())
	data := make([]byte, 500_000)
	for i := range 40 {
		if _, err := admin.Create(t.Context(), fmt.Sprintf("/large-%d", i), data); err != nil {
			t.Fatal(err)
		}
	}
	o.must("-e", c.target(), "--timeout", "30s", "backup", "save", file)
	for _, victim := range []string{"its server", "the leader"} {
		leader, server := c.leader(), c.follower()
		kill := map[string]*process{"its server": server, "the leader": leader}[victim]
		if _, err := dial(t, c.endpoints()).Create(t.Context(), "/later", nil); err != nil {
			t.Fatal(err)
		}
		endpoints := server.grpc()
		for _, p := range c.nodes {
			if p != server {
				endpoints += "," + p.grpc()
			}
		}
		applied := appliedAt(leader)
		done := make(chan error, 1)
		go func() {
			cmd := exec.Command(program(t, "coordctl"), "-e", endpoints, "--timeout", "30s", "backup", "restore", file, "--yes")
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			done <- err
		}()
		poll(t, time.Minute, "the restore is under way", func() error {
			if appliedAt(leader) < applied+10 {
				return errors.New("not begun")
			}
			return nil
		})
		kill.kill()
		kill.start()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s dies: %v", victim, err)
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("%s dies: the restore does not end", victim)
		}
		c.waitReady(time.Minute)
		if ok, err := exists(t, c, "/later"); err != nil || ok {
			t.Errorf("%s dies: a znode of after the backup: %v, %v", victim, ok, err)
		}
		if ok, err := exists(t, c, "/large-39"); err != nil || !ok {
			t.Errorf("%s dies: a znode of the backup: %v, %v", victim, ok, err)
		}
		c.sameDigests()
	}
}

// appliedAt is how far a server is in the log, 0 if it does not answer.
func appliedAt(p *process) uint64 {
	st, err := p.status()
	if err != nil {
		return 0
	}
	return st.GetAppliedIndex()
}

func TestRestoreWithoutAQuorumSaysSo(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	file := filepath.Join(t.TempDir(), "a.cbk")
	alone := c.nodes[0]
	(&operator{c}).must("-e", alone.grpc(), "backup", "save", file)
	for _, p := range c.nodes[1:] {
		p.kill()
	}
	// A backup can be made all the same.
	(&operator{c}).must("-e", alone.grpc(), "backup", "save", file, "--force")
	out, err := exec.Command(program(t, "coordctl"), "-e", alone.grpc(), "backup", "restore", file, "--yes").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 6 || !strings.Contains(string(out), "no quorum") {
		t.Errorf("%v\n%s", err, out)
	}
}
