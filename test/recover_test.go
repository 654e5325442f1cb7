package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

// coordd runs a command on the data of a server that does not run.
func (p *process) coordd(args ...string) (string, error) {
	p.c.t.Helper()
	cmd := exec.Command(program(p.c.t, "coordd"), args...)
	cmd.Env = append(os.Environ(), "COORDD_NODE_NAME="+p.name, "COORDD_NODE_DATA_DIR="+p.dataDir(), "COORDD_LISTEN_GRPC="+p.grpc())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (p *process) mustCoordd(args ...string) string {
	p.c.t.Helper()
	out, err := p.coordd(args...)
	if err != nil {
		p.c.t.Fatalf("coordd %v: %v\n%s", args, err, out)
	}
	return out
}

// Two of three servers lose their disks. The third is made a cluster of its own,
// what it has is served, tokens go on rising, and the others, wiped and started
// all at once with it, converge without anything else being done.
func TestRecoverALostQuorum(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	old := dial(t, c.endpoints(), quiet, client.WithSessionTimeout(5*time.Second))
	if _, err := old.Create(t.Context(), "/kept", []byte("data")); err != nil {
		t.Fatal(err)
	}
	held, err := lock.New(old, "/locks/a").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.sameDigests()
	survivor := c.nodes[2]
	for _, p := range c.nodes[:2] {
		p.kill()
		if err := os.RemoveAll(p.dataDir()); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := survivor.coordd("recover", "--config", c.conf, "--preview"); err == nil {
		t.Fatalf("a server that runs is looked into:\n%s", out)
	}
	survivor.stop()

	out := survivor.mustCoordd(opsLine(t, "Recover a lost quorum", "coordd recover --config coordd.yaml --preview", "coordd.yaml", c.conf)...)
	for _, want := range []string{"Lost: whatever n1 and n2 acknowledged", "1 session", "Never start n1 or n2"} {
		if !strings.Contains(out, want) {
			t.Errorf("the preview does not say %q:\n%s", want, out)
		}
	}
	if out, err := survivor.coordd("recover", "--config", c.conf, "--keep", "n1", "--yes"); err == nil {
		t.Fatalf("n3 was kept where n1 was asked for:\n%s", out)
	}
	if out, err := survivor.coordd("recover", "--config", c.conf); err == nil {
		t.Fatalf("nobody was asked:\n%s", out)
	}
	keep := opsLine(t, "Recover a lost quorum", "coordd recover --config coordd.yaml --keep n3", "coordd.yaml", c.conf)
	survivor.mustCoordd(append(keep, "--yes")...)
	inspected := survivor.mustCoordd("inspect", survivor.dataDir(), "--entries", "--json")
	if !strings.Contains(inspected, `"server":"n3~`) {
		t.Errorf("inspect says:\n%s", inspected)
	}

	for _, p := range c.nodes { // all together
		p.start()
	}
	fresh := dial(t, c.endpoints())
	if n, err := fresh.Get(t.Context(), "/kept"); err != nil || string(n.Data) != "data" {
		t.Errorf("the first read: %q, %v", n.Data, err)
	}
	h, err := lock.New(fresh, "/locks/a").Acquire(t.Context())
	if err != nil || h.FencingToken() <= held.FencingToken() {
		t.Errorf("the next token is %v after %v, %v", h, held.FencingToken(), err)
	}
	poll(t, time.Minute, "the client of before learns that its session is over", func() error {
		if old.Session().Context().Err() == nil {
			return errors.New("it lives")
		}
		return nil
	})
	c.waitReady(time.Minute)
	for _, p := range c.nodes {
		one, err := client.Dial(t.Context(), p.grpc(), quiet)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := one.Get(t.Context(), "/kept"); err != nil || string(n.Data) != "data" {
			t.Errorf("%s: %q, %v", p.name, n.Data, err)
		}
		_ = one.Close() // nothing depends on it
	}
	c.sameDigests()
}

// Secrets are in no output of inspect, whatever it looks into.
func TestInspectShowsNoSecrets(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 1, "")
	cl, err := client.Dial(t.Context(), c.target(), client.WithAuth("digest", []byte("ann:password-of-ann")))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	acl := client.WithACL(client.ACL{Perms: 31, Scheme: "digest", ID: zkDigest("ann:password-of-ann")})
	for i := range 20 {
		if _, err := cl.Create(t.Context(), fmt.Sprintf("/secret-%d", i), []byte("data-that-is-secret"), acl); err != nil {
			t.Fatal(err)
		}
	}
	p := c.nodes[0]
	if out, err := p.coordd("inspect", p.dataDir()); err == nil || !strings.Contains(out, "in use") {
		t.Errorf("of a server that runs: %v\n%s", err, out)
	}
	p.stop()
	for _, args := range [][]string{{"--entries"}, {"--entries", "--json"}, {"--from", "1", "--to", "5"}} {
		out := p.mustCoordd(append([]string{"inspect", p.dataDir()}, args...)...)
		_, hash, _ := strings.Cut(zkDigest("ann:password-of-ann"), ":")
		for _, secret := range []string{"password-of-ann", hash, "data-that-is-secret"} {
			if strings.Contains(out, secret) {
				t.Errorf("%v shows %q", args, secret)
			}
		}
		if args[0] == "--entries" && !strings.Contains(out, "create /secret-7 (19 bytes)") {
			t.Errorf("%v does not show what was written:\n%.2000s", args, out)
		}
	}
}
