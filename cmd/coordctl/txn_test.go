package main

import (
	"os/exec"
	"strings"
	"testing"
)

// A file with a mistake is refused with the place of the mistake, and no server
// is asked.
func TestTxnFilesAreReadStrictly(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{`{}`, "txn: want a list of operations: [{\"op\": ..."},
		{`{"op":"set"}`, "have a JSON object"},
		{``, "there is nothing; want a list"},
		{`[]`, "the list of operations is empty"},
		{`null`, "the list of operations is empty"},
		{`[{"op":7}]`, `field "op" cannot be a JSON number`},
		{`[{"op":"set","path":"/a","verson":3}]`, `unknown field "verson"`},
		{"[\n{\"op\":\"set\",\n\"path\":}]", "(line 3)"},
		{`[] []`, "behind the list"},
		{`[{"op":"put","path":"/a"}]`, `operation 0: op "put" is none of`},
		{`[{"op":"check","path":"/a"},{"op":"check","path":"/a","data":"x"}]`, "operation 1: check takes no data"},
		{`[{"op":"create","path":"/a","version":1}]`, "create takes no version"},
		{`[{"op":"create","path":"/a","czxid":"0x1"}]`, "create takes no czxid"},
		{`[{"op":"create","path":"/a","ttl":"30s"}]`, "create takes no ttl"},
		{`[{"op":"create","path":"/a","kind":"ttl","ttl":"soon"}]`, `ttl "soon"`},
		{`[{"op":"create","path":"/a","kind":"folder"}]`, `kind "folder"`},
		{`[{"op":"delete","path":"/a","sequential":true}]`, "delete takes no sequential"},
		{`[{"op":"set","path":"/a","data":"x","dataEncoding":"hex"}]`, `dataEncoding "hex"`},
		{`[{"op":"set","path":"/a","data":"!","dataEncoding":"base64"}]`, "data: illegal base64"},
		{`[{"op":"set","path":"/a","version":"x"}]`, `version "x" is no whole number`},
		{`[{"op":"set","path":"/a","version":1.5}]`, "version 1.5 is no whole number"},
		{`[{"op":"set","path":"/a","czxid":"x"}]`, "czxid"},
		{`[{"op":"set","path":"/a","owner":"x"}]`, "owner"},
		{`[{"op":"setACL","path":"/a"}]`, "setACL needs acl"},
		{`[{"op":"setACL","path":"/a","acl":["world"]}]`, "ACL entry"},
	} {
		_, err := parseTxn([]byte(c.text))
		if _, code := classify(err); code != exitUsage || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.text, err)
		}
	}
}

// A version may come as a string, as JSON tools round large numbers.
func TestTxnTakesLargeVersions(t *testing.T) {
	ops, err := parseTxn([]byte(`[{"op":"set","path":"/a","version":"9007199254740993"},{"op":"set","path":"/a","version":9007199254740993}]`))
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		if op.version() != 9007199254740993 {
			t.Errorf("version %d", op.version())
		}
	}
}

func TestTxnIsAllOrNothing(t *testing.T) {
	t.Parallel()
	fresh(t, "/txn")
	must(t, "create", "/txn", "0")
	on(t, `[{"op":"create","path":"/txn/a"},{"op":"set","path":"/txn","data":"1","version":7}]`, "txn", "-", "-q").
		want(t, exitPrecondition, "", "coordctl: txn: operation 1 on /txn: version is 0, you said 7\n")
	r := on(t, `[{"op":"delete","path":"/txn","version":7}]`, "txn", "-")
	if strings.Contains(r.stderr, "--version") || !strings.Contains(r.stderr, `leave "version" out of the operation`) {
		t.Errorf("the hint names what txn does not have: %s", r.stderr)
	}
	on(t, "", "ls", "/txn").want(t, exitOK, "", "")
	czxid := zxidOf(t, "/txn")
	on(t, `[{"op":"check","path":"/txn","czxid":"`+czxid+`","version":0},{"op":"set","path":"/txn","data":"1","version":0},
		{"op":"create","path":"/txn/s-","sequential":true},{"op":"create","path":"/txn/e","kind":"container"},
		{"op":"setACL","path":"/txn/e","acl":["world:anyone:rcda"]},{"op":"delete","path":"/txn/e"}]`, "txn", "-").
		want(t, exitOK, "~2  create  /txn/s-0000000000", "")
	on(t, "", "get", "/txn").want(t, exitOK, "1", "")
	on(t, `[{"op":"check","path":"/txn"},{"op":"check","path":"/txn","czxid":"0x1"}]`, "txn", "-").
		want(t, exitPrecondition, "", "~operation 1 on /txn: not the very znode asked for")
	on(t, `[{"op":"check","path":"/txn"},{"op":"check","path":"/txn/"}]`, "txn", "-").
		want(t, exitUsage, "", "~operation 1 on /txn/: path")
}

// Ephemeral znodes of a transaction belong to a session that is left to expire.
func TestTxnWithEphemerals(t *testing.T) {
	t.Parallel()
	fresh(t, "/txn-e")
	must(t, "create", "/txn-e")
	p := start(t, sharedCluster(t), func(cmd *exec.Cmd) {
		cmd.Stdin = strings.NewReader(`[{"op":"create","path":"/txn-e/a","kind":"ephemeral"}]`)
	}, "txn", "-")
	if code := p.wait(t); code != exitOK || !strings.Contains(p.stderr.String(), "is left to expire") {
		t.Fatalf("exit code %d\n%s", code, p.stderr.String())
	}
	on(t, "", "stat", "/txn-e/a").want(t, exitOK, "~ephemeralOwner  0x", "")
}
