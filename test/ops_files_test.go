package test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A backup and a data directory are looked into, and the backup goes into a cluster
// that is made anew, as docs/ops.md says; what is not asked for is refused.
func TestBackupIsLookedIntoAndGoesIntoANewClusterAsThePageSays(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 1, "")
	o := &operator{c}
	nightly := filepath.Join(t.TempDir(), "nightly.cbk")
	cl := dial(t, c.endpoints())
	for _, path := range []string{"/app", "/app/config"} {
		if _, err := cl.Create(t.Context(), path, []byte("the configuration")); err != nil {
			t.Fatal(err)
		}
	}
	o.ctl("Back up", "coordctl backup save nightly.cbk", nil, "nightly.cbk", nightly)
	p := c.nodes[0]
	p.stop() // nothing of what follows needs a server
	for _, look := range []struct {
		out  []byte
		want string
	}{
		{o.ctl("Back up", "coordctl backup verify nightly.cbk", nil, "nightly.cbk", nightly), "checked"},
		{o.ctl("Back up", "coordctl backup show nightly.cbk", nil, "nightly.cbk", nightly), "test"},
		{o.ctl("Back up", "coordctl backup show nightly.cbk /app/config", nil, "nightly.cbk", nightly), "the configuration"},
		{[]byte(p.mustCoordd(opsLine(t, "Look into files", "coordd inspect nightly.cbk", "nightly.cbk", nightly)...)), "backup of cluster test"},
		{[]byte(p.mustCoordd(opsLine(t, "Look into files", "coordd inspect /var/lib/coordd", "/var/lib/coordd", p.dataDir())...)), "n1~"},
		{[]byte(p.mustCoordd(opsLine(t, "Look into files", "coordd inspect /var/lib/coordd --from 120400 --to 120500 --json",
			"/var/lib/coordd", p.dataDir(), "120400", "1", "120500", "9")...)), `"server":"n1~`},
	} {
		if !strings.Contains(string(look.out), look.want) {
			t.Errorf("%q is not in\n%s", look.want, look.out)
		}
	}

	fresh := newProcesses(t, 3, "")
	for _, p := range fresh.nodes {
		p.extraEnv = []string{"COORDD_CLUSTER_BOOTSTRAP=manual"}
		p.start()
	}
	o = &operator{fresh}
	poll(t, time.Minute, "the cluster is formed", func() error {
		_, err := exec.Command(program(t, "coordctl"), "-e", fresh.target(), "cluster", "init").Output()
		return err
	})
	fresh.waitReady(time.Minute)
	into := func() []byte {
		return o.ctl("Restore", "coordctl backup restore nightly.cbk --into-empty", []string{"--yes"}, "nightly.cbk", nightly)
	}
	if out := into(); !strings.Contains(string(out), "restored ") {
		t.Errorf("into an empty cluster: %s", out)
	}
	if n, err := dial(t, fresh.endpoints()).Get(t.Context(), "/app/config"); err != nil || string(n.Data) != "the configuration" {
		t.Errorf("%q, %v", n.Data, err)
	}
	again := opsLine(t, "Restore", "coordctl backup restore nightly.cbk --into-empty", "nightly.cbk", nightly)
	if out, code := coordctl(t, fresh.target(), append(again, "--yes")...); code != 4 || !strings.Contains(out, "was to be empty") || !strings.Contains(out, "nothing was replaced") {
		t.Errorf("into one that is not: exit code %d: %s", code, out)
	}
	fresh.sameDigests()
}
