package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

// TestEachCodeHasItsError walks the protocol's codes: none may reach a caller as
// an unknown one, and none as success.
func TestEachCodeHasItsError(t *testing.T) {
	for n, name := range coordpb.Code_name {
		c := coordpb.Code(n)
		if c == coordpb.Code_CODE_OK {
			continue
		}
		err := sentinel(c)
		if err == nil || strings.Contains(err.Error(), "unknown code") {
			t.Errorf("%s has no error", name)
		}
		if gone(c) && passing(c) {
			t.Errorf("%s is passing and final", name)
		}
	}
	if err := sentinel(coordpb.Code(9999)); !errors.Is(err, ErrProtocol) {
		t.Fatalf("a code of the future: %v", err)
	}
}

// TestErrorsAreTheSameOnBothEnds: what the service returns is what the client's
// callers test for.
func TestErrorsAreTheSameOnBothEnds(t *testing.T) {
	for c, want := range map[coordpb.Code]error{
		coordpb.Code_CODE_NO_NODE:            znode.ErrNoNode,
		coordpb.Code_CODE_PROTECTED:          znode.ErrBadArguments,
		coordpb.Code_CODE_ROLLED_BACK:        znode.ErrRolledBack,
		coordpb.Code_CODE_SESSION_EXPIRED:    session.ErrExpired,
		coordpb.Code_CODE_UNKNOWN_OUTCOME:    session.ErrUnknownOutcome,
		coordpb.Code_CODE_REQUEST_ID_TOO_OLD: session.ErrRequestTooOld,
		coordpb.Code_CODE_NOT_FORMED:         ErrUnavailable,
	} {
		err := error(fromProto("set", "/a", "n1", &coordpb.Error{Code: c, Message: "words"}))
		if !errors.Is(err, want) {
			t.Errorf("%s: %v is not %v", c, err, want)
		}
	}
}

func TestErrorsSayWhatWasTried(t *testing.T) {
	e := &Error{
		Op: "get", Path: "/a", Index: -1, Err: errors.Join(context.DeadlineExceeded, ErrUnavailable), Tried: []Attempt{
			{Endpoint: "n1:7420", Err: errors.New("connection refused")}, {Endpoint: "n2:7420", Err: errNoAnswer},
		},
		Detail: "no server has answered",
	}
	for _, part := range []string{"get /a", "no server has answered", "n1:7420: connection refused", "n2:7420: no answer"} {
		if !strings.Contains(e.Error(), part) {
			t.Errorf("%q lacks %q", e, part)
		}
	}
	se := &SessionError{ID: 0x2a, Reason: Silent, Timeout: 10 * time.Second, Stalled: 12300 * time.Millisecond}
	for _, part := range []string{"0x000000000000002a", "silent", "did not run for 12.3s"} {
		if !strings.Contains(se.Error(), part) {
			t.Errorf("%q lacks %q", se, part)
		}
	}
}

// TestErrorsSayEachThingOnce: on one line.
func TestErrorsSayEachThingOnce(t *testing.T) {
	for target, want := range map[string]string{
		"":                `dial: no endpoint: want host:port,host:port`,
		"http://x":        `dial: target "http://x": scheme must be coord or coords`,
		"coord://h?nme=x": `dial: target "coord://h?nme=x": unknown parameter "nme"; known are session, name and identity`,
	} {
		if _, err := Dial(t.Context(), target); err == nil || err.Error() != want || !errors.Is(err, ErrBadArguments) {
			t.Errorf("%q: %v", target, err)
		}
		if _, err := NewAdmin(target); err == nil || err.Error() != want || !errors.Is(err, ErrBadArguments) {
			t.Errorf("%q: %v", target, err)
		}
	}
	cl := &Client{core: &core{opts: &options{}}}
	err := cl.txnError(fromProto(opTxn, "", "n1", &coordpb.Error{
		Code: coordpb.Code_CODE_NO_NODE, Message: "operation 1: no such node", OpIndex: 1,
	}), []Op{OpCreate("/a", nil), OpCreate("/nope", nil)})
	if want := "txn /nope (operation 1): no such node"; err.Error() != want || !errors.Is(err, ErrNoNode) {
		t.Errorf("got %v", err)
	}
	err = fromProto("exists", "/a", "n1", &coordpb.Error{Code: coordpb.Code_CODE_NO_NODE, Message: "/a: no such node"})
	if want := "exists /a: no such node"; err.Error() != want {
		t.Errorf("got %v", err)
	}
	for _, fact := range []error{ErrUnknownOutcome, ErrUnavailable} {
		both := &interrupted{context.DeadlineExceeded, fact}
		if strings.Contains(both.Error(), "\n") || !errors.Is(both, fact) || !errors.Is(both, context.DeadlineExceeded) {
			t.Errorf("got %v", both)
		}
	}
}

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		target, endpoints, chroot, name string
		timeout                         time.Duration
		tls                             bool
	}{
		{target: "n1:7420,n2:7420", endpoints: "n1:7420 n2:7420"},
		{target: "n1, n2:99 ,n1:7420", endpoints: "n1:7420 n2:99"},
		{target: "[::1]:7420,::1", endpoints: "[::1]:7420"},
		{target: "coord://h1,h2:1/app/x?session=15s&name=billing", endpoints: "h1:7420 h2:1", chroot: "/app/x", name: "billing", timeout: 15 * time.Second},
		{target: "coords://h1/", endpoints: "h1:7420", tls: true},
		{target: "coord://h1/a%20b", endpoints: "h1:7420", chroot: "/a b"},
	} {
		got, opts, err := parseTarget(c.target)
		if err != nil {
			t.Errorf("%s: %v", c.target, err)
			continue
		}
		var o options
		for _, opt := range opts {
			opt(&o)
		}
		if strings.Join(got, " ") != c.endpoints || o.chroot != c.chroot || o.timeout != c.timeout || o.serverTLS != c.tls || o.name != c.name {
			t.Errorf("%s: %v %+v", c.target, got, o)
		}
	}
	for _, bad := range []string{"", ",", "http://x", "coord://", "coord://h?sesion=1s", "coord://h?session=x", "a b:1", ":7420", "n1:", "coord://h/%zz", "user@h:1"} {
		if _, _, err := parseTarget(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestBadOptionsAreNamed(t *testing.T) {
	for _, opts := range [][]Option{
		{WithChroot("no-slash")},
		{WithSessionTimeout(-1)},
		{WithoutSession(), WithIdentity("x")},
		{WithTLSFiles("", "cert", "")},
		{WithTLSFiles("/does/not/exist", "", "")},
	} {
		if _, err := Dial(t.Context(), "n1", opts...); !errors.Is(err, ErrBadArguments) {
			t.Errorf("got %v", err)
		}
	}
}

func TestBackoffGrowsAndIsBounded(t *testing.T) {
	b := Backoff{}.withDefaults()
	for n, most := range map[int]time.Duration{1: 50 * time.Millisecond, 3: 200 * time.Millisecond, 100: 2 * time.Second} {
		for range 100 {
			if d := b.wait(n); d > most || d < most/2 {
				t.Fatalf("wait %d is %s", n, d)
			}
		}
	}
}
