package main

import (
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/internal/localcluster"
	"github.com/coordd/coord/internal/testcerts"
	"github.com/coordd/coord/internal/tlsfiles"
	"github.com/coordd/coord/server"
)

// Over TLS the files come from flags or the context, what is wrong with a
// certificate is said, and who is no superuser is not admin.
func TestTLS(t *testing.T) {
	t.Setenv("COORDCTL_CONFIG", filepath.Join(t.TempDir(), "contexts.yaml"))
	ca := testcerts.New(t, "coord-ca")
	files := func(cn string, use testcerts.Use) testcerts.Files {
		f := testcerts.In(t.TempDir())
		ca.Write(t, f, cn, use)
		return f
	}
	node, admin, user := files("n1", testcerts.Both), files("ops", testcerts.ClientOnly), files("billing", testcerts.ClientOnly)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := localcluster.Start(ctx, localcluster.Options{Change: func(cfg *server.Config) {
		cfg.TLS = tlsfiles.Files{CA: node.CA, Cert: node.Cert, Key: node.Key}
		cfg.ClientAuth, cfg.Superusers = tls.RequireAndVerifyClientCert, []string{"ops"}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	with := func(f testcerts.Files, args ...string) []string {
		return append([]string{"-e", c.Target(), "--cacert", f.CA, "--cert", f.Cert, "--key", f.Key}, args...)
	}
	ctl(t, "", with(admin, "create", "/tls", "x")...).want(t, exitOK, "/tls\n", "")
	ctl(t, "", with(user, "get", "/tls")...).want(t, exitOK, "x", "")
	ctl(t, "", with(admin, "sessions", "--no-headers")...).want(t, exitOK, "", "")
	ctl(t, "", with(user, "sessions")...).want(t, exitNotPermitted, "", "~not permitted")
	ctl(t, "", with(user, "lock", "/tls/l", "true")...).want(t, 0, "", "")
	ctl(t, "", append(with(admin, "context", "add", "secure"), "--server-name", "localhost")...).want(t, exitOK, "", "")
	ctl(t, "", "get", "/tls").want(t, exitOK, "x", "")
	ctl(t, "", "wait", "ready").want(t, exitOK, "", "coordctl: ready\n")
	ctl(t, "", "status").want(t, exitOK, "~healthy", "")

	stranger := testcerts.In(t.TempDir())
	testcerts.New(t, "other-ca").Write(t, stranger, "ops", testcerts.ClientOnly)
	for name, r := range map[string]result{
		"another authority": ctl(t, "", with(stranger, "get", "/tls")...),
		"another name":      ctl(t, "", with(admin, "--server-name", "elsewhere", "get", "/tls")...),
		"no TLS":            ctl(t, "", "-e", c.Target(), "--context", "", "--timeout", "2s", "get", "/tls"),
	} {
		if r.code != exitUnreachable && r.code != exitTimeout || !strings.Contains(r.stderr, c.Target()) {
			t.Errorf("%s: exit code %d\n%s", name, r.code, r.stderr)
		}
		if name != "no TLS" && !strings.Contains(r.stderr, "certificate") {
			t.Errorf("%s: no word about the certificate:\n%s", name, r.stderr)
		}
	}
}

// A password comes from a file, and proves an identity for digest ACLs.
func TestAuthFile(t *testing.T) {
	t.Parallel()
	auth := filepath.Join(t.TempDir(), "ann.auth")
	if err := os.WriteFile(auth, []byte("ann:secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fresh(t, "/auth-file")
	must(t, "create", "/auth-file")
	on(t, "", "--auth-file", auth, "create", "--acl", "auth::rwcda", "/auth-file/own", "x").want(t, exitOK, "/auth-file/own\n", "")
	on(t, "", "get", "/auth-file/own").want(t, exitNotPermitted, "", "~not permitted")
	on(t, "", "--auth-file", auth, "get", "/auth-file/own").want(t, exitOK, "x", "")
	r := on(t, "", "--auth-file", auth, "acl", "get", "/auth-file/own")
	if r.code != exitOK || !strings.HasPrefix(r.stdout, "digest:ann:") || strings.Contains(r.stdout, "secret") {
		t.Errorf("exit code %d\n%s", r.code, r.stdout)
	}
}
