package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
)

// importer runs `coordctl import` between an ensemble and a cluster.
type importer struct {
	t      testing.TB
	c      *processes
	source *ensemble
	super  string // file with the superuser's digest, who is the same on both sides
}

// output is what a run of coordctl said.
type output struct {
	stdout, stderr string
	code           int
}

func newImporter(t testing.TB) *importer {
	t.Helper()
	i := &importer{t: t, source: startEnsemble(t), super: filepath.Join(t.TempDir(), "super.auth")}
	i.c = startProcesses(t, 3, "auth: {super_digest: \""+zkDigest(zkSuper)+"\"}\n")
	if err := os.WriteFile(i.super, []byte(zkSuper+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return i
}

func (i *importer) command(args ...string) *exec.Cmd {
	cmd := exec.Command(program(i.t, "coordctl"), append([]string{"-e", i.c.target()}, args...)...)
	cmd.Env = append(os.Environ(), "COORDCTL_CONFIG="+filepath.Join(i.c.dir, "contexts.yaml"))
	return cmd
}

// run runs coordctl as nobody in particular.
func (i *importer) run(args ...string) output {
	i.t.Helper()
	cmd := i.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		i.t.Fatal(err)
	}
	return output{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// asSuper runs an import or a verification as the superuser of both sides.
func (i *importer) asSuper(args ...string) output {
	i.t.Helper()
	at := slices.Index(args, "zookeeper") + 1
	all := append([]string{"--auth-file", i.super}, args[:at]...)
	return i.run(append(append(all, i.source.host(), "--source-auth-file", i.super), args[at:]...)...)
}

// want fails the test unless coordctl ended so and said all of that.
func (o output) want(t testing.TB, what string, code int, texts ...string) output {
	t.Helper()
	if o.code != code {
		t.Fatalf("%s: exit code %d, want %d\n%s\n%s", what, o.code, code, o.stdout, o.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(o.stdout+o.stderr, text) {
			t.Errorf("%s: nothing of %q in\n%s\n%s", what, text, o.stdout, o.stderr)
		}
	}
	return o
}

// json reads what coordctl has printed.
func (o output) json(t testing.TB, what string) (doc importDoc) {
	t.Helper()
	if err := json.Unmarshal([]byte(o.stdout), &doc); err != nil {
		t.Fatalf("%s: %v in\n%s\n%s", what, err, o.stdout, o.stderr)
	}
	return doc
}

// importDoc is what both commands print for scripts.
type importDoc struct {
	Kind                                                             string
	DryRun, Same                                                     bool
	Znodes, Copied, Present, Overwritten, Counters, Quotas, ACLLists int
	Ephemerals, Notes, Parents                                       []string
	Refused                                                          []struct{ Path, Kind, Limit, Reason string }
	Conflicts                                                        []struct {
		Path string
		What []string
	}
	Differences []struct{ Path, What, Detail string }
}

// everyKind puts every kind of znode into the ensemble and returns the connection,
// whose session has the ephemerals.
func everyKind(e *ensemble) *zkConn {
	z := zkOpen(e.t, e.host())
	z.auth("digest", zkSuper)
	ann := []znode.ACL{{Perms: 31, Scheme: "digest", ID: zkDigest("ann:pw")}, {Perms: 1, Scheme: "world", ID: "anyone"}}
	null := zkCreate("/app/null", "", 0)
	null.Data = nil
	secret, below := zkCreate("/app/secret", "s", 0), zkCreate("/app/secret/below", "b", 0)
	secret.ACL, below.ACL = ann, []znode.ACL{{Perms: 3, Scheme: "ip", ID: "10.0.0.0/8"}}
	container := zkCreate("/app/container", "", wire.FlagContainer)
	container.Type = wire.CreateContainer
	ttl := zkCreate("/app/ttl", "t", wire.FlagPersistentTTL)
	ttl.Type, ttl.TTL = wire.CreateTTL, time.Hour
	z.fill(
		zkCreate("/app", "data of app", 0), null, zkCreate("/app/empty", "", 0), zkCreate("/app/large", strings.Repeat("x", 900<<10), 0),
		secret, below, container, zkCreate("/app/container/child", "", 0), ttl, zkCreate("/app/größe-名前", "ü\x00\xff", 0),
		zkCreate("/app/queue", "", 0), zkCreate("/app/used", "", 0),
		zkCreate("/other", "o", 0), zkSet("/other", "changed", -1),
		zkCreate("/app/e1", "", wire.FlagEphemeral), zkCreate("/app/queue/e-", "", wire.FlagEphemeralSequential),
	)
	var queue []wire.Request
	for range 7 {
		queue = append(queue, zkCreate("/app/queue/n-", "job", wire.FlagSequential), zkCreate("/app/used/n-", "", wire.FlagSequential))
	}
	for n := range 7 {
		queue = append(queue, zkDelete(fmt.Sprintf("/app/used/n-%010d", n), -1))
	}
	queue = append(queue, zkDelete("/app/queue/n-0000000007", -1))
	z.fill(queue...)
	deep := "/app"
	for n := range 30 {
		deep += fmt.Sprintf("/d%d", n)
		z.must(zkCreate(deep, "deep", 0))
	}
	z.fill(
		zkCreate("/zookeeper/quota/app", "", 0), zkCreate("/zookeeper/quota/app/zookeeper_limits", "count=1000,bytes=-1=;byteHardLimit=-1;countHardLimit=500", 0),
		zkCreate("/zookeeper/quota/app/zookeeper_stats", "", 0),
	)
	return z
}

// TestImportCopiesEveryKindOfZnode copies a real ZooKeeper and compares by means of
// its own: what the clients of both see must be the same.
func TestImportCopiesEveryKindOfZnode(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	i := newImporter(t)
	from := everyKind(i.source)
	dry := i.asSuper("import", "zookeeper", "--dry-run", "--json").want(t, "dry run", 0).json(t, "dry run")
	if dry.Kind != "Import" || !dry.DryRun || dry.Copied == 0 || dry.Copied != dry.Znodes-1 || dry.Quotas != 1 || dry.Counters != 3 ||
		!slices.Equal(dry.Ephemerals, []string{"/app/e1", "/app/queue/e-0000000000"}) {
		t.Errorf("dry run: %+v", dry)
	}
	to := zkOpen(t, i.c.nodes[1].zookeeper())
	to.auth("digest", zkSuper)
	to.wants(wire.NoNode, zkRead(wire.Exists, "/app", false))
	i.asSuper("import", "verify", "zookeeper").want(t, "before", 8, "/app ", "missing")

	i.asSuper("import", "zookeeper").want(t, "import", 0, fmt.Sprintf("copied         %d znodes", dry.Copied), "2 ephemeral znodes, /zookeeper", "/app/e1")
	i.asSuper("import", "verify", "zookeeper").want(t, "after", 0, "all the same")
	to.must(wire.Request{Op: wire.Op{Type: wire.Sync, Path: "/"}})
	sameTrees(t, from, to, "/")

	// Numbers go on behind those that were given out, also where nobody is left.
	for _, path := range []string{"/app/queue/n-", "/app/used/n-"} {
		was, is := from.must(zkCreate(path, "", wire.FlagSequential)).Path, to.must(zkCreate(path, "", wire.FlagSequential)).Path
		if was != is {
			t.Errorf("next in ZooKeeper is %s, here %s", was, is)
		}
		from.must(zkDelete(was, -1))
		to.must(zkDelete(is, -1))
	}
	// A second import has nothing to do.
	again := i.asSuper("import", "zookeeper", "--json").want(t, "again", 0).json(t, "again")
	if again.Copied != 0 || again.Overwritten != 0 || again.Present != again.Znodes || again.Quotas != 0 {
		t.Errorf("second import: %+v", again)
	}
	// Limits are in force, and the statistics are kept.
	if r := to.must(zkRead(wire.GetData, "/zookeeper/quota/app/zookeeper_stats", false)); !strings.HasPrefix(string(r.Data), "count=") {
		t.Errorf("statistics: %q", r.Data)
	}
	i.c.sameDigests()
}

// sameTrees compares two trees as ZooKeeper's clients see them, without ephemerals.
func sameTrees(t testing.TB, a, b *zkConn, path string) {
	t.Helper()
	x, y := a.must(zkRead(wire.GetData, path, false)), b.must(zkRead(wire.GetData, path, false))
	if path != "/" && ((x.Data == nil) != (y.Data == nil) || !bytes.Equal(x.Data, y.Data)) {
		t.Errorf("%s: data %.50q and %.50q", path, x.Data, y.Data)
	}
	if p, q := a.must(zkRead(wire.GetACL, path, false)).ACL, b.must(zkRead(wire.GetACL, path, false)).ACL; !slices.Equal(p, q) {
		t.Errorf("%s: ACL %v and %v", path, p, q)
	}
	names, others := zkPersistent(a, path), zkPersistent(b, path)
	if !slices.Equal(names, others) {
		t.Errorf("%s: children %v and %v", path, names, others)
		return
	}
	for _, name := range names {
		if path != "/" || name != "zookeeper" {
			sameTrees(t, a, b, strings.TrimSuffix(path, "/")+"/"+name)
		}
	}
}

// zkPersistent lists the children that are nobody's ephemerals.
func zkPersistent(c *zkConn, path string) []string {
	names := c.must(zkRead(wire.GetChildren, path, false)).Names
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool {
		return c.must(zkRead(wire.Exists, strings.TrimSuffix(path, "/")+"/"+name, false)).Stat.EphemeralOwner != 0
	})
}
