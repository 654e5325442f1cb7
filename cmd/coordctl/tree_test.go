package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCreateGetSetDelete(t *testing.T) {
	t.Parallel()
	fresh(t, "/cgsd")
	on(t, "", "create", "/cgsd", "one").want(t, exitOK, "/cgsd\n", "")
	on(t, "", "get", "/cgsd").want(t, exitOK, "one", "")
	on(t, "", "set", "/cgsd", "two", "--version", "0").want(t, exitOK, "", "")
	on(t, "", "get", "-o", "raw", "/cgsd").want(t, exitOK, "two", "")
	on(t, "", "get", "--stat", "/cgsd").want(t, exitOK, "~two\nkind            persistent\nczxid           0x", "")
	on(t, "", "stat", "/cgsd").want(t, exitOK, "~version         1\n", "")
	on(t, "", "delete", "--version", "1", "/cgsd").want(t, exitOK, "", "")
	on(t, "", "get", "/cgsd").want(t, exitNotFound, "", "coordctl: get /cgsd: no such node\n")
	on(t, "", "stat", "/cgsd").want(t, exitNotFound, "", "coordctl: stat /cgsd: no such node\n")
	on(t, "", "delete", "/cgsd").want(t, exitNotFound, "", "coordctl: delete /cgsd: no such node\n")
	on(t, "", "ls", "/cgsd").want(t, exitNotFound, "", "coordctl: ls /cgsd: no such node\n")
}

// A wrong version is named together with the one that is there.
func TestWrongVersionNamesBoth(t *testing.T) {
	t.Parallel()
	fresh(t, "/wrong-version")
	must(t, "create", "/wrong-version", "x")
	must(t, "set", "/wrong-version", "y")
	on(t, "", "set", "/wrong-version", "z", "--version", "5", "-q").
		want(t, exitPrecondition, "", "coordctl: set /wrong-version: version is 1, you said 5\n")
	on(t, "", "delete", "/wrong-version", "--version", "7", "-q").
		want(t, exitPrecondition, "", "coordctl: delete /wrong-version: version is 1, you said 7\n")
	on(t, "", "set", "/wrong-version", "z", "--version", "-2").want(t, exitUsage, "", "~versions count from 0")
	on(t, "", "get", "/wrong-version").want(t, exitOK, "y", "")
}

// Data comes from the argument, from standard input or from a file, and null is
// not the empty value.
func TestDataArguments(t *testing.T) {
	t.Parallel()
	fresh(t, "/data-args")
	file := filepath.Join(t.TempDir(), "data")
	binary := "\x00\xff\xfe line\n"
	if err := os.WriteFile(file, []byte(binary), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "create", "/data-args")
	for _, c := range []struct {
		name, stdin string
		args        []string
		raw, json   string
	}{
		{"null", "", nil, "", `"data": null,`},
		{"empty", "", []string{""}, "", `"data": "",`},
		{"argument", "", []string{"text <&> ü"}, "text <&> ü", `"data": "text <&> ü",`},
		{"stdin", "from stdin\n", []string{"-"}, "from stdin\n", `"data": "from stdin\n",`},
		{"empty-stdin", "", []string{"-"}, "", `"data": "",`},
		{"file", "", []string{"@" + file}, binary, `"dataEncoding": "base64",`},
	} {
		on(t, c.stdin, append([]string{"create", "/data-args/" + c.name}, c.args...)...).want(t, exitOK, "/data-args/"+c.name+"\n", "")
		on(t, "", "get", "/data-args/"+c.name).want(t, exitOK, c.raw, "")
		on(t, "", "get", "--json", "/data-args/"+c.name).want(t, exitOK, "~"+c.json, "")
	}
	on(t, "", "create", "/data-args/none", "@/no/such/file").want(t, exitUsage, "", "~no such file")
}

func TestCreateKinds(t *testing.T) {
	t.Parallel()
	fresh(t, "/kinds")
	must(t, "create", "-c", "/kinds")
	on(t, "", "create", "-s", "/kinds/a-").want(t, exitOK, "/kinds/a-0000000000\n", "")
	on(t, "", "create", "-s", "/kinds/a-").want(t, exitOK, "/kinds/a-0000000001\n", "")
	on(t, "", "create", "--ttl", "1h", "/kinds/t").want(t, exitOK, "/kinds/t\n", "")
	on(t, "", "create", "-p", "/kinds/deep/down/here", "x").want(t, exitOK, "/kinds/deep/down/here\n", "")
	on(t, "", "create", "-p", "/kinds/deep/down/there").want(t, exitOK, "/kinds/deep/down/there\n", "")
	on(t, "", "create", "/kinds/t").want(t, exitPrecondition, "", "coordctl: create /kinds/t: node exists\n")
	on(t, "", "create", "/kinds/no/parent").want(t, exitNotFound, "", "~no such node")
	on(t, "", "stat", "/kinds").want(t, exitOK, "~kind            container", "")
	on(t, "", "stat", "/kinds/t").want(t, exitOK, "~ttl             1h0m0s", "")
	on(t, "", "create", "-e", "-c", "/kinds/x").want(t, exitUsage, "", "~exclude each other")
	on(t, "", "create", "--hold", "/kinds/x").want(t, exitUsage, "", "~go with --ephemeral")
	on(t, "", "create", "--ttl", "1us", "/kinds/x").want(t, exitUsage, "", "~milliseconds")
	on(t, "", "create", "--acl", "world:anyone:r", "/kinds/ro").want(t, exitOK, "/kinds/ro\n", "")
	on(t, "", "set", "/kinds/ro", "x").want(t, exitNotPermitted, "", "~not permitted")
}

// Behind create -e is --ephemeral; a user who meant endpoints is told.
func TestMisplacedEndpointsAreExplained(t *testing.T) {
	t.Parallel()
	on(t, "", "create", "-e", "127.0.0.1:7420", "/x").
		want(t, exitUsage, "", "~hint: a path begins with /; behind create, -e means ephemeral")
}

func TestListings(t *testing.T) {
	t.Parallel()
	fresh(t, "/listings")
	must(t, "create", "/listings", "top")
	must(t, "create", "/listings/b", "12345")
	must(t, "create", "/listings/a")
	must(t, "create", "/listings/a/x")
	must(t, "create", "/listings/a-z")
	on(t, "", "ls", "/listings").want(t, exitOK, "a\na-z\nb\n", "")
	on(t, "", "ls", "-R", "/listings").
		want(t, exitOK, "/listings\n/listings/a\n/listings/a/x\n/listings/a-z\n/listings/b\n", "")
	on(t, "", "ls", "/listings/b").want(t, exitOK, "", "")
	on(t, "", "tree", "/listings").want(t, exitOK, `/listings
├── a
│   └── x
├── a-z
└── b  5 B
`, "")
	on(t, "", "tree", "-L", "1", "/listings").want(t, exitOK, `/listings
├── a  1 child
├── a-z
└── b  5 B
`, "")
	on(t, "", "tree", "-L", "0", "/listings").want(t, exitUsage, "", "~is below 1")
	for _, args := range [][]string{{"ls", "-l"}, {"ls", "-l", "-R"}} {
		r := on(t, "", append(args, "--no-headers", "/listings")...)
		if r.code != exitOK || strings.Contains(r.stdout, "VERSION") || !strings.Contains(r.stdout, "persistent  0  5 B") {
			t.Errorf("%v: exit code %d\n%s%s", args, r.code, r.stdout, r.stderr)
		}
	}
	on(t, "", "ls", "/").want(t, exitOK, "~listings\n", "")
}

// Names may hold what breaks tables and terminals.
func TestHostileNamesStayOnTheirLine(t *testing.T) {
	t.Parallel()
	fresh(t, "/hostile")
	must(t, "create", "/hostile")
	must(t, "create", "/hostile/tab\u200bbed", "x")
	r := on(t, "", "ls", "-l", "--no-headers", "/hostile")
	if r.code != exitOK || strings.Count(r.stdout, "\n") != 1 {
		t.Errorf("exit code %d, %q", r.code, r.stdout)
	}
	if got := oneLine("a\tb\nc\x1b[31m"); got != "a\uFFFDb\uFFFDc\uFFFD[31m" {
		t.Errorf("oneLine: %q", got)
	}
}

func TestSyncPrintsTheZxid(t *testing.T) {
	t.Parallel()
	on(t, "", "sync").want(t, exitOK, "~0x", "")
}

// Every command works through each of the servers.
func TestThroughEachServer(t *testing.T) {
	t.Parallel()
	fresh(t, "/each")
	must(t, "create", "/each")
	for i, endpoint := range sharedCluster(t).Endpoints() {
		path := "/each/" + string(rune('a'+i))
		ctl(t, "", "-e", endpoint, "create", path, "x").want(t, exitOK, path+"\n", "")
		for _, other := range sharedCluster(t).Endpoints() {
			ctl(t, "", "-e", other, "get", path).want(t, exitOK, "x", "") // linearizable
		}
	}
}

func TestACLs(t *testing.T) {
	t.Parallel()
	must(t, "create", "-p", "/acls/node")
	t.Cleanup(func() { must(t, "deleteall", "--yes", "/acls") }) // DELETE is a permission of the parent
	on(t, "", "acl", "get", "/acls/node").want(t, exitOK, "world:anyone:cdrwa\n", "")
	on(t, "", "acl", "set", "/acls/node", "world:anyone:r", "digest:ann:uqYYnQHLXGAoYRNl/M7EJjpbaHs=:rwcda").want(t, exitOK, "", "")
	on(t, "", "acl", "get", "/acls/node").want(t, exitOK, "~world:anyone:r\ndigest:ann:", "")
	on(t, "", "set", "/acls/node", "x").want(t, exitNotPermitted, "", "~not permitted")
	on(t, "", "acl", "set", "/acls/node", "world:anyone:cdrwa").want(t, exitNotPermitted, "", "~not permitted")
	on(t, "", "acl", "set", "/nope", "world:anyone:r").want(t, exitNotFound, "", "~no such node")
	for _, bad := range []string{"world:anyone", "world", ":anyone:r", "world:anyone:", "world:anyone:rx", "world:anyone:rr"} {
		on(t, "", "acl", "set", "/acls/node", bad).want(t, exitUsage, "", "~ACL entry")
	}
}

func TestACLEntriesAreReadAsWritten(t *testing.T) {
	for _, c := range []struct{ entry, scheme, id, perms string }{
		{"world:anyone:r", "world", "anyone", "r"},
		{"digest:ann:hash=:rwcda", "digest", "ann:hash=", "cdrwa"},
		{"auth::a", "auth", "", "a"},
		{"ip:fe80::1:dc", "ip", "fe80::1", "cd"},
		{"x509:CN=a,O=b:w", "x509", "CN=a,O=b", "w"},
	} {
		list, err := parseACL([]string{c.entry})
		if err != nil {
			t.Errorf("%s: %v", c.entry, err)
			continue
		}
		if got := list[0]; got.Scheme != c.scheme || got.ID != c.id || permLetters(got.Perms) != c.perms {
			t.Errorf("%s: %+v", c.entry, got)
		}
	}
}

// A missing parent is named, with the way to have it made.
func TestCreateNamesTheMissingParent(t *testing.T) {
	t.Parallel()
	fresh(t, "/parents")
	on(t, "", "create", "/parents/a/b").want(t, exitNotFound, "", "~hint: /parents/a is missing; -p creates missing parents")
	must(t, "create", "-p", "/parents/a/b")
}
