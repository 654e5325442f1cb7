package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
)

// closedPort is an address where nobody listens. An outgoing connection has it
// until the end of the test, so that nobody can come to listen there either.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.LocalAddr().String()
}

// A closed port is no reason to wait. The aim is 100 ms; the bound is ten times
// that, for a machine that is busy.
func TestClosedPortFailsAtOnceWithTheReason(t *testing.T) {
	t.Parallel()
	a, b := closedPort(t), closedPort(t)
	for _, args := range [][]string{
		{"get", "/x"},
		{"set", "/x", "y"},
		{"ls"},
		{"create", "-e", "/x"},
		{"watch", "/x"},
		{"txn", "-"},
		{"sync"},
		{"status"},
		{"members"},
		{"members", "remove", "n1", "--yes"},
		{"members", "promote", "n1"},
		{"sessions"},
		{"locks"},
		{"locks", "show", "/x"},
		{"cluster", "init"},
		{"cluster", "upgrade"},
		{"bench", "get"},
		{"deleteall", "/x", "--yes"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			began := time.Now()
			r := ctl(t, `[{"op":"check","path":"/x"}]`, append([]string{"-e", a + "," + b}, args...)...)
			if took := time.Since(began); took > time.Second {
				t.Errorf("took %s", took)
			}
			if r.code != exitUnreachable || r.stdout != "" {
				t.Errorf("exit code %d, stdout %q", r.code, r.stdout)
			}
			if !strings.Contains(r.stderr, "connection refused") || !strings.Contains(r.stderr, "hint: `coordd dev` starts a server here") {
				t.Errorf("stderr:\n%s", r.stderr)
			}
			if args[0] != "bench" && (!strings.Contains(r.stderr, a) || !strings.Contains(r.stderr, b)) {
				t.Errorf("not both endpoints are named:\n%s", r.stderr)
			}
		})
	}
	ctl(t, "", "-e", a, "lock", "/x", "true").want(t, exitCannotRun, "", "~connection refused")
}

// Any of the endpoints will do, in whatever order they stand.
func TestGoesOnToTheNextEndpoint(t *testing.T) {
	t.Parallel()
	fresh(t, "/next")
	for i, live := range sharedCluster(t).Endpoints() {
		e := closedPort(t) + "," + live + "," + closedPort(t)
		via := func(args ...string) result { // whether, not how soon: the machine may be busy
			return ctl(t, "", append([]string{"-e", e, "--timeout", "30s"}, args...)...)
		}
		path := fmt.Sprintf("/next/%d", i)
		via("create", "-p", path, "x").want(t, exitOK, path+"\n", "")
		via("get", path).want(t, exitOK, "x", "")
		via("sessions", "--no-headers", "-q").want(t, exitOK, "~", "")
		via("status").want(t, exitOK, "~endpoint 127.0.0.1:", "")
		via("lock", path, "true").want(t, 0, "", "")
		via("watch", "--initial", "--count", "1", path).want(t, exitOK, "~present", "")
	}
}

// A port where something else listens, and one that says nothing.
func TestStrangersAreNamed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			c.Close()
		}
	}()
	began := time.Now()
	r := ctl(t, "", "-e", l.Addr().String(), "--timeout", "1s", "get", "/x")
	if took := time.Since(began); took > 5*time.Second || r.code != exitUnreachable && r.code != exitTimeout {
		t.Errorf("exit code %d after %s\n%s", r.code, took, r.stderr)
	}
	if !strings.Contains(r.stderr, l.Addr().String()) {
		t.Errorf("stderr:\n%s", r.stderr)
	}
}

// The HTTP port is easily taken for the clients' one: that is said at once, for
// every kind of request.
func TestHTTPPortIsNamed(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	address := web.Listener.Addr().String()
	for _, line := range []string{"get /x", "set /x y", "create -e /x", "status", "sessions", "watch /x"} {
		began := time.Now()
		r := ctl(t, "", append([]string{"-e", address, "--timeout", "1m"}, strings.Fields(line)...)...)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s took %s", line, took)
		}
		if r.code != exitUnreachable || !strings.Contains(r.stderr, address) ||
			!strings.Contains(r.stderr, "answers, but not as a coordd client port") || !strings.Contains(r.stderr, "listen.grpc") {
			t.Errorf("%s: exit code %d\n%s", line, r.code, r.stderr)
		}
	}
	for _, live := range sharedCluster(t).Endpoints() {
		if isStranger(live) {
			t.Errorf("%s is taken for a stranger", live)
		}
	}
	if isStranger(closedPort(t)) {
		t.Error("a closed port is taken for a stranger")
	}
}

// The time that is named is that of all rounds.
func TestTimeOfAllRoundsIsNamed(t *testing.T) {
	began := time.Now().Add(-4500 * time.Millisecond)
	err := &client.Error{Err: client.ErrUnavailable, Index: -1, Tried: []client.Attempt{{Endpoint: "a:1", At: time.Now(), Err: errors.New("x")}}}
	if text := describe(unanswered(err, nil, began)); !strings.Contains(text, "1 endpoint tried in 4.5") {
		t.Error(text)
	}
}

// A script learns whether a write that failed may have been done, and nothing of
// that kind where no write has failed.
func TestOutcomeOfWrites(t *testing.T) {
	for _, c := range []struct {
		command string
		err     error
		want    string
	}{
		{"coordctl set", &client.Error{Op: "set", Err: client.ErrBadVersion}, "notDone"},
		{"coordctl set", &client.Error{Op: "dial", Err: client.ErrUnavailable}, "notDone"},
		{"coordctl set", &client.Error{Op: "set", Err: client.ErrUnknownOutcome, Outcome: client.MaybeDone}, "maybeDone"},
		{"coordctl acl set", &quorumError{err: &client.Error{Op: "set acl", Err: client.ErrUnknownOutcome}}, "maybeDone"},
		{"coordctl set", errors.New("write /dev/full: no space left on device"), ""},
		{"coordctl create", &client.Error{Op: "close", Err: client.ErrUnavailable}, ""},
		{"coordctl get", &client.Error{Op: "get", Err: client.ErrNoNode}, ""},
		{"coordctl deleteall", &client.Error{Op: "delete", Err: client.ErrNoAuth}, ""},
	} {
		if got := outcome(c.command, c.err); got != c.want {
			t.Errorf("%s: %v: %q, want %q", c.command, c.err, got, c.want)
		}
	}
}

// Wrong use is exit code 2, says what is wrong, and asks no server.
func TestWrongUse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, says string }{
		{"nosuch", `unknown command "nosuch" for "coordctl"`},
		{"delet", "did you mean delete"},
		{"acl nosuch", `unknown command "nosuch" for "coordctl acl"`},
		{"completion bsh", `unknown command "bsh" for "coordctl completion"`},
		{"get", "PATH is missing"},
		{"get /a /b", "usage: coordctl get PATH"},
		{"--bogus get /a", "unknown flag: --bogus"},
		{"--bogus=1 get /a", "unknown flag: --bogus"},
		{"get --bogus /a", "hint: coordctl get --help"},
		{"--timeout 0s get /a", "is not above zero"},
		{"--timeout soon get /a", "invalid argument"},
		{"-o yaml get /a", "is none of table"},
		{"--color pink get /a", "is none of auto"},
		{"--context nosuch get /a", `no context "nosuch"`},
		{"get a", "must start with a slash"},
		{"get /a/", "invalid path"},
		{"--cert a.pem get /a", "set together"},
		{"--cacert /no/such.pem get /a", "no such file"},
		{"--auth-file /no/such get /a", "no such file"},
		{"-e host:port:1 get /a", "endpoint"},
		{"watch /a --since soon", "--since"},
		{"watch /a -r --children", "--children"},
		{"watch /a --count -1", "must not be negative"},
		{"deleteall /", "never deleted"},
		{"deleteall /zookeeper/quota --yes", "never deleted"},
		{"bench fast", "is none of create, set, get, mixed, lock"},
		{"bench set --clients 0", "--clients"},
		{"bench set --depth 5000", "--depth"},
		{"bench get --read-mode fresh", "--read-mode"},
		{"bench lock --depth 2", "depth of 1"},
		{"context add prod", "needs --endpoints"},
		{"demo paused-worker --fencing maybe", "is none of on, off"},
		{"txn /no/such/file", "no such file"},
	} {
		t.Run(c.line, func(t *testing.T) {
			ctl(t, "", strings.Fields(c.line)...).want(t, exitUsage, "", "~"+c.says)
			r := ctl(t, "", append([]string{"--json"}, strings.Fields(c.line)...)...)
			if r.code != exitUsage || !strings.HasPrefix(r.stderr, `{"error":{"code":"Usage",`) {
				t.Errorf("--json: exit code %d, stderr %q", r.code, r.stderr)
			}
		})
	}
}

// --help in front of a command must not run it.
func TestHelpInFrontRunsNothing(t *testing.T) {
	t.Parallel()
	fresh(t, "/help-first")
	must(t, "create", "/help-first")
	for _, flag := range []string{"--help", "-h"} {
		r := on(t, "", flag, "delete", "/help-first")
		if r.code != exitOK || !strings.Contains(r.stdout, "Usage:") {
			t.Errorf("%s: exit code %d\n%s%s", flag, r.code, r.stdout, r.stderr)
		}
	}
	on(t, "", "stat", "/help-first").want(t, exitOK, "~persistent", "")
}

// Each error of the client has an exit code that means something, and a name.
func TestErrorsHaveExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		name string
	}{
		{client.ErrNoNode, 3, "NoNode"},
		{client.ErrNodeExists, 4, "NodeExists"},
		{client.ErrBadVersion, 4, "BadVersion"},
		{client.ErrNotEmpty, 4, "NotEmpty"},
		{client.ErrEphemeralParent, 4, "EphemeralParent"},
		{client.ErrQuotaExceeded, 4, "QuotaExceeded"},
		{client.ErrNoAuth, 5, "NoAuth"},
		{client.ErrAuthFailed, 5, "AuthFailed"},
		{client.ErrProtected, 5, "Protected"},
		{client.ErrBadPath, 2, "BadPath"},
		{client.ErrBadArguments, 2, "BadArguments"},
		{client.ErrInvalidACL, 2, "InvalidACL"},
		{client.ErrTooLarge, 1, "TooLarge"},
		{client.ErrUnavailable, 6, "Unavailable"},
		{client.ErrNotFormed, 6, "NotFormed"},
		{errors.Join(context.DeadlineExceeded, client.ErrUnavailable), 6, "Unavailable"},
		{context.DeadlineExceeded, 7, "TimeLimit"},
		{&timeLimitError{time.Second}, 7, "TimeLimit"},
		{client.ErrSessionExpired, 1, "SessionExpired"},
		{client.ErrUnknownOutcome, 1, "UnknownOutcome"},
		{client.ErrOverloaded, 1, "Overloaded"},
		{client.ErrDiskFull, 1, "DiskFull"},
		{client.ErrIdentityInUse, 4, "IdentityInUse"},
		{errInterrupted, 130, "Interrupted"},
		{errUnhealthy, 8, "Unhealthy"},
		{usagef("x"), 2, "Usage"},
		{errors.New("x"), 1, "Failed"},
	} {
		wrapped := fmt.Errorf("wrapped: %w", &client.Error{Op: "get", Path: "/x", Err: c.err, Index: -1})
		if name, code := classify(wrapped); name != c.name || code != c.code {
			t.Errorf("%v: %s %d, want %s %d", c.err, name, code, c.name, c.code)
		}
	}
}

// Each command has what a newcomer needs: a sentence, a worked example, and a
// check of its arguments.
func TestEveryCommandIsDocumented(t *testing.T) {
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		if cmd.Short == "" || cmd.Args == nil {
			t.Errorf("%s: no short description, or no check of arguments", path)
		}
		if !cmd.HasSubCommands() && !cmd.Hidden && !strings.Contains(cmd.Example, strings.TrimPrefix(path, "coordctl ")) {
			t.Errorf("%s: no worked example", path)
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(newRootCmd(newEnv(nil, nil, nil)))
}

// No secret is the value of a flag: it would show in lists of processes.
func TestNoFlagTakesASecret(t *testing.T) {
	for _, word := range []string{"password", "secret", "token"} {
		root := newRootCmd(newEnv(nil, nil, nil))
		if f := root.PersistentFlags().Lookup(word); f != nil {
			t.Errorf("flag --%s", word)
		}
		for _, cmd := range root.Commands() {
			if f := cmd.Flags().Lookup(word); f != nil {
				t.Errorf("%s: flag --%s", cmd.CommandPath(), word)
			}
		}
	}
}
