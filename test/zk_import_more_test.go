package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
)

// TestImportSaysWhatIsInTheWay goes through all that keeps a subtree from being
// copied, or makes the copy another one than there was.
func TestImportSaysWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	i := newImporter(t)
	for name, f := range map[string]func(*testing.T, *importer, *zkConn, *zkConn){
		"limits": importLimits, "secrets": importSecrets, "rights": importRights, "conflicts": importConflicts,
		"differences": importDifferences, "elsewhere": importElsewhere, "wrong use": importWrongUse,
	} {
		t.Run(name, func(t *testing.T) {
			from, to := zkOpen(t, i.source.host()), zkOpen(t, i.c.nodes[0].zookeeper())
			from.auth("digest", zkSuper)
			to.auth("digest", zkSuper)
			mine := *i
			mine.t = t
			f(t, &mine, from, to)
		})
	}
}

// importLimits: what no znode of the cluster can be is named, by a dry run too, and
// then nothing at all is written.
func importLimits(t *testing.T, i *importer, from, to *zkConn) {
	long := "/limits/" + strings.Repeat("long/", 3) + strings.Repeat("n", 4085)
	from.fill(
		zkCreate("/limits", "", 0), zkCreate("/limits/good", "", 0), zkCreate("/limits/blob", strings.Repeat("x", 1<<20+1), 0),
		zkCreate("/limits/fits", strings.Repeat("x", 1<<20), 0),
		zkCreate("/limits/long", "", 0), zkCreate("/limits/long/long", "", 0), zkCreate("/limits/long/long/long", "", 0), zkCreate(long, "", 0),
	)
	for _, more := range [][]string{{"--dry-run"}, nil} {
		o := i.asSuper(append([]string{"import", "zookeeper", "--path", "/limits"}, more...)...)
		o.want(t, "limits", 4, "/limits/blob: 1048577 bytes of data, at most 1048576 (limits.node_size)", "at most 4096 (limits.path_size)", "nothing was written: 2 znodes cannot be copied")
	}
	doc := i.asSuper("import", "zookeeper", "--path", "/limits", "--json").want(t, "limits", 4).json(t, "limits")
	if len(doc.Refused) != 2 || doc.Refused[0].Limit != "limits.node_size" || doc.Refused[1].Path != long || doc.Copied != 0 {
		t.Errorf("%+v", doc)
	}
	to.wants(wire.NoNode, zkRead(wire.Exists, "/limits", false))
	// Where the path is shorter it fits; what belongs to the service does not.
	from.must(zkDelete("/limits/blob", -1))
	i.asSuper("import", "zookeeper", "--path", "/limits/long/long/long", "--under", "/short").want(t, "shorter", 0, "copied         2 znodes")
	from.must(zkCreate("/limits/zookeeper", "", 0))
	i.asSuper("import", "zookeeper", "--path", "/limits", "--under", "/", "--dry-run").want(t, "service", 4, "/zookeeper belongs to the service")
}

// importSecrets: who may not see a znode, or the hashes in its ACL, does not copy a
// part of the tree or an ACL that nobody can match.
func importSecrets(t *testing.T, i *importer, from, to *zkConn) {
	ann := []znode.ACL{{Perms: 31, Scheme: "digest", ID: zkDigest("ann:pw")}, {Perms: 1, Scheme: "world", ID: "anyone"}}
	masked, hidden := zkCreate("/secrets/masked", "m", 0), zkCreate("/secrets/hidden", "h", 0)
	masked.ACL, hidden.ACL = ann, ann[:1]
	from.fill(zkCreate("/secrets", "", 0), masked, hidden)
	o := i.run("import", "zookeeper", i.source.host(), "--path", "/secrets", "--auth-file", i.super)
	o.want(t, "without credentials", 5, "/secrets/hidden: may not be read with these credentials", "/secrets/masked: its ACL is shown without the hashes", "--source-auth-file")
	i.run("import", "verify", "zookeeper", i.source.host(), "--path", "/secrets", "--auth-file", i.super).want(t, "verify without credentials", 8, "unreadable")
	to.wants(wire.NoNode, zkRead(wire.Exists, "/secrets", false))
	// Whoever has ADMIN sees the hashes: it need not be the superuser.
	own := filepath.Join(t.TempDir(), "ann.auth")
	if err := os.WriteFile(own, []byte("bob:x\nann:pw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	i.run("import", "zookeeper", i.source.host(), "--path", "/secrets", "--source-auth-file", own).want(t, "as ann", 0)
	to.must(wire.Request{Op: wire.Op{Type: wire.Sync, Path: "/"}})
	if acl := to.must(zkRead(wire.GetACL, "/secrets/masked", false)).ACL; len(acl) != 2 || acl[0].ID != zkDigest("ann:pw") {
		t.Errorf("ACL %v", acl)
	}
	// Compared by somebody who may not see it in the cluster.
	i.run("import", "verify", "zookeeper", i.source.host(), "--path", "/secrets", "--source-auth-file", i.super).want(t, "verify as nobody", 8, "hidden")
	i.asSuper("import", "verify", "zookeeper", "--path", "/secrets").want(t, "verify", 0)
}

// importRights: who could not go on below an ACL that is copied is told before.
func importRights(t *testing.T, i *importer, from, to *zkConn) {
	closed, counted := zkCreate("/rights/closed", "", 0), zkCreate("/rights/counted", "", 0)
	closed.ACL = []znode.ACL{{Perms: 1, Scheme: "world", ID: "anyone"}}
	counted.ACL = []znode.ACL{{Perms: 15, Scheme: "world", ID: "anyone"}}
	from.fill(zkCreate("/rights", "", 0), closed, zkCreate("/rights/closed/a", "", 0), counted, zkCreate("/rights/counted/a", "", 0), zkDelete("/rights/counted/a", -1))
	args := []string{"import", "zookeeper", i.source.host(), "--path", "/rights", "--source-auth-file", i.super}
	i.run(args...).want(t, "as nobody", 5, "/rights/closed: its ACL keeps you from creating what is below it",
		"/rights/counted: its ACL keeps you from raising its sequence counter", "hint: --auth-file with a superuser")
	to.wants(wire.NoNode, zkRead(wire.Exists, "/rights", false))
	if names := to.must(zkRead(wire.GetChildren, "/", false)).Names; strings.Contains(fmt.Sprint(names), "probe") {
		t.Errorf("left behind: %v", names)
	}
	i.run(append(args, "--auth-file", i.super)...).want(t, "as super", 0)
	i.asSuper("import", "verify", "zookeeper", "--path", "/rights").want(t, "verify", 0)
	sameTrees(t, from, to, "/rights")
}

// importConflicts: what is there and differs is not touched unless that is said.
func importConflicts(t *testing.T, i *importer, from, to *zkConn) {
	from.fill(zkCreate("/conflicts", "new", 0), zkCreate("/conflicts/same", "same", 0), zkCreate("/conflicts/fresh", "f", 0), zkCreate("/conflicts/busy", "", 0))
	own := zkCreate("/conflicts", "old", 0)
	own.ACL = []znode.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}, {Perms: 1, Scheme: "ip", ID: "10.0.0.1"}}
	to.fill(own, zkCreate("/conflicts/same", "same", 0), zkCreate("/conflicts/busy", "", wire.FlagEphemeral))
	i.asSuper("import", "zookeeper", "--path", "/conflicts").want(t, "conflicts", 4, "/conflicts: data, ACL", "/conflicts/busy: ephemeral", "hint: --overwrite")
	to.wants(wire.NoNode, zkRead(wire.Exists, "/conflicts/fresh", false))
	i.asSuper("import", "zookeeper", "--path", "/conflicts", "--overwrite", "--yes").want(t, "an ephemeral", 4, "/conflicts/busy: ephemeral")
	to.must(zkDelete("/conflicts/busy", -1))
	i.asSuper("import", "zookeeper", "--path", "/conflicts", "--overwrite").want(t, "without a terminal", 2, "--yes")
	i.asSuper("import", "zookeeper", "--path", "/conflicts", "--overwrite", "--yes").want(t, "overwrite", 0, "copied         2 znodes", "overwritten    1 znode", "already there  1 znode")
	i.asSuper("import", "verify", "zookeeper", "--path", "/conflicts").want(t, "verify", 0)
}

// importDifferences: whatever is done to the ensemble after the copy is found.
func importDifferences(t *testing.T, i *importer, from, to *zkConn) {
	null := zkSet("/diff/null", "", -1)
	null.Data = nil
	from.fill(zkCreate("/diff", "", 0), zkCreate("/diff/set", "1", 0), zkCreate("/diff/null", "", 0), zkCreate("/diff/acl", "", 0), zkCreate("/diff/gone", "", 0), zkCreate("/diff/q", "", 0))
	verify := []string{"import", "verify", "zookeeper", "--path", "/diff"}
	i.asSuper("import", "zookeeper", "--path", "/diff").want(t, "import", 0)
	i.asSuper(verify...).want(t, "verify", 0, "6 znodes compared: all the same")
	acl := wire.Request{Op: wire.Op{Type: wire.SetACL, Path: "/diff/acl", ACL: []znode.ACL{{Perms: 1, Scheme: "world", ID: "anyone"}}, Version: -1}}
	from.fill(zkSet("/diff/set", "2", -1), null, acl, zkDelete("/diff/gone", -1), zkCreate("/diff/new", "", 0), zkCreate("/diff/q/n-", "", wire.FlagEphemeralSequential))
	doc := i.asSuper(append(verify, "--json")...).want(t, "verify", 8).json(t, "verify")
	got := map[string]string{}
	for _, d := range doc.Differences {
		got[d.Path] += d.What
	}
	want := map[string]string{"/diff/set": "data", "/diff/null": "data", "/diff/acl": "ACL", "/diff/gone": "extra", "/diff/new": "missing", "/diff/q": "counter", "/diff": "counter"}
	if doc.Kind != "ImportVerification" || doc.Same || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %v", got, want)
	}
	i.asSuper("import", "zookeeper", "--path", "/diff", "--overwrite", "--yes").want(t, "again", 0)
	to.must(zkDelete("/diff/gone", -1))
	i.asSuper(verify...).want(t, "verify again", 0)
}

// importElsewhere: a subtree under another path, with the quota that it has, below
// znodes that are not there yet; and a root with data.
func importElsewhere(t *testing.T, i *importer, from, to *zkConn) {
	from.fill(zkCreate("/else", "top", 0), zkCreate("/else/where", "", 0), zkCreate("/else/where/n-", "x", wire.FlagSequential),
		zkCreate("/zookeeper/quota/else", "", 0), zkCreate("/zookeeper/quota/else/where", "", 0), zkCreate("/zookeeper/quota/else/where/zookeeper_limits", "count=5,bytes=-1", 0))
	i.asSuper("import", "zookeeper", "--path", "/else", "--under", "/a/new/place").want(t, "elsewhere", 0, "copied         3 znodes", "1 quota")
	i.asSuper("import", "verify", "zookeeper", "--path", "/else", "--under", "/a/new/place").want(t, "verify", 0)
	to.must(wire.Request{Op: wire.Op{Type: wire.Sync, Path: "/"}})
	if r := to.must(zkRead(wire.GetData, "/zookeeper/quota/a/new/place/where/zookeeper_stats", false)); string(r.Data) != "count=2,bytes=1" {
		t.Errorf("statistics %q", r.Data)
	}
	if r := to.must(zkRead(wire.GetData, "/a/new/place", false)); string(r.Data) != "top" {
		t.Errorf("top %q", r.Data)
	}
	from.must(zkSet("/zookeeper/quota/else/where/zookeeper_limits", "count=6,bytes=-1", -1))
	i.asSuper("import", "verify", "zookeeper", "--path", "/else", "--under", "/a/new/place").want(t, "another quota", 8, "zookeeper_limits", "the limits differ")
	// The root is there before anything is: its data comes along while nobody has
	// set any here.
	i.asSuper("import", "zookeeper", "--path", "/else/where", "--under", "/").want(t, "to the root", 0)
	from.must(zkSet("/else/where", "root data", -1))
	i.asSuper("import", "zookeeper", "--path", "/else/where", "--under", "/").want(t, "the root's data", 0, "copied         1 znode,")
	from.must(zkSet("/else/where", "other data", -1))
	i.asSuper("import", "zookeeper", "--path", "/else/where", "--under", "/").want(t, "the root was set", 4, "/: data")
	to.fill(zkDelete("/n-0000000000", -1))
}

func importWrongUse(t *testing.T, i *importer, _, _ *zkConn) {
	host := i.source.host()
	for _, x := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"import", "zookeeper"}, 2, "accepts 1 arg"},
		{[]string{"import", "zookeeper", host + "/chroot"}, 2, "--path /chroot"},
		{[]string{"import", "zookeeper", host, "--path", "app"}, 2, "--path"},
		{[]string{"import", "zookeeper", host, "--path", "/zookeeper/quota"}, 2, "belongs to the service"},
		{[]string{"import", "zookeeper", host, "--under", "/zookeeper"}, 2, "belongs to the service"},
		{[]string{"import", "zookeeper", host, "--stale"}, 2, "--stale"},
		{[]string{"import", "zookeeper", host, "--source-auth-file", "/no/file"}, 2, "/no/file"},
		{[]string{"import", "zookeeper", host, "--path", "/no/node"}, 3, "/no/node: no such znode in the ensemble"},
		{[]string{"import", "zookeeper", "127.0.0.1:1,127.0.0.1:2"}, 6, "cannot reach the ensemble (2 hosts tried"},
		{[]string{"import", "verify", "zookeeper", "127.0.0.1:1", "--json"}, 6, `"code":"SourceUnreachable"`},
		{[]string{"import", "etcd", host}, 2, "unknown command"},
	} {
		i.run(x.args...).want(t, strings.Join(x.args, " "), x.code, x.text)
	}
}

// manyZnodes puts a folder with so many children into the ensemble.
func (c *zkConn) manyZnodes(dir string, folders, each int) {
	c.must(zkCreate(dir, "", 0))
	for f := range folders {
		path := fmt.Sprintf("%s/f%d", dir, f)
		requests := []wire.Request{zkCreate(path, "", 0)}
		for range each {
			requests = append(requests, zkCreate(path+"/n-", "some data of a znode, as there are many", wire.FlagSequential))
		}
		c.fill(requests...)
	}
}

// TestImportGoesOnAfterItWasKilled kills coordctl, the leader of the cluster and the
// ensemble's server, each in the middle of a copy.
func TestImportGoesOnAfterItWasKilled(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	i := newImporter(t)
	from := zkOpen(t, i.source.host())
	const folders, each = 20, 1000
	from.manyZnodes("/many", folders, each)
	all := 1 + folders*(1+each)

	under, begun := i.killedCopy()
	// The next one finds what is there, while the leader is killed under it.
	cmd := i.command("import", "zookeeper", i.source.host(), "--path", "/many", "--under", under, "--json")
	var out, progress strings.Builder // progress is told after a second
	cmd.Stdout, cmd.Stderr = &out, &progress
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	i.arrived(under, begun)
	leader := i.c.leader()
	leader.kill()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the leader was killed: %v\n%s%s", err, out.String(), progress.String())
	}
	leader.start()
	doc := output{stdout: out.String()}.json(t, "second run")
	if doc.Znodes != all || doc.Present < begun || doc.Copied+doc.Present != all {
		t.Errorf("second run: %d znodes, %d there, %d copied, of %d", doc.Znodes, doc.Present, doc.Copied, all)
	}
	i.asSuper("import", "verify", "zookeeper", "--path", "/many", "--under", under).want(t, "whole copy", 0)

	// The ensemble goes away and comes back.
	cmd = i.command("import", "zookeeper", i.source.host(), "--path", "/many", "--under", "/again", "--json")
	out.Reset()
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	i.arrived("/again", 500)
	i.source.kill()
	i.source.start()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the ensemble was started again: %v\n%s", err, out.String())
	}
	i.asSuper("import", "verify", "zookeeper", "--path", "/many", "--under", "/again").want(t, "copy of a server that was killed", 0)
	i.c.waitReady(30 * time.Second)
	i.c.sameDigests()
}

// killedCopy kills an import of /many in the middle and returns where there is a part
// of it now, and of how many znodes at least. An import that was done before it was
// killed does not count.
func (i *importer) killedCopy() (under string, begun int) {
	i.t.Helper()
	for n := range 5 {
		under = fmt.Sprintf("/half%d", n)
		cmd := i.command("import", "zookeeper", i.source.host(), "--path", "/many", "--under", under)
		if err := cmd.Start(); err != nil {
			i.t.Fatal(err)
		}
		begun = i.arrived(under, 500)
		_ = cmd.Process.Kill() // it may be done
		_ = cmd.Wait()
		if o := i.asSuper("import", "verify", "zookeeper", "--path", "/many", "--under", under); o.code != 0 {
			o.want(i.t, "half a copy", 8, "missing")
			return under, begun
		}
	}
	i.t.Fatal("each import was done before it could be killed")
	return "", 0
}

// arrived waits until so many znodes are below path in the cluster, and returns how
// many they are.
func (i *importer) arrived(path string, want int) int {
	i.t.Helper()
	c := zkOpen(i.t, i.c.follower().zookeeper())
	defer c.net.Close()
	count := 0
	poll(i.t, 30*time.Second, "a part of the copy", func() error {
		r := c.call(wire.Request{Op: wire.Op{Type: wire.GetAllChildrenNumber, Path: path}})
		if count = int(r.Number); r.Err != wire.OK || count < want {
			return fmt.Errorf("%d znodes, %w", count, r.Err)
		}
		return nil
	})
	return count
}
