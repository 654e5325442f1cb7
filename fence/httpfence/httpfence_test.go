package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/boltfence"
	"github.com/coordd/coord/fence/httpfence"
)

func byPath(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }

// serve answers everything that is let through with "done".
func serve(t *testing.T, guard func(http.Handler) http.Handler) string {
	t.Helper()
	s := httptest.NewServer(guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g, _ := fence.FromContext(r.Context())
		fmt.Fprintf(w, "done under %s", g.Token)
	})))
	t.Cleanup(s.Close)
	return s.URL
}

// send makes a request with headers, given as name and value by turns.
func send(t *testing.T, url string, headers ...string) (status int, body string, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := httpfence.CheckResponse(resp); err != nil {
		return resp.StatusCode, "", err
	}
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func TestStaleTokenIsRefusedWithBothNumbers(t *testing.T) {
	url := serve(t, httpfence.Require(fence.NewGate(), byPath))
	for _, token := range []string{"33", "33", "34"} {
		if status, body, err := send(t, url+"/r", httpfence.Header, token); status != 200 || body != "done under "+token || err != nil {
			t.Fatalf("%s: %d %q %v", token, status, body, err)
		}
	}
	status, _, err := send(t, url+"/r", httpfence.Header, "33")
	var stale *fence.StaleError
	if status != http.StatusPreconditionFailed || !errors.As(err, &stale) || *stale != (fence.StaleError{Resource: "r", Got: 33, Seen: 34}) {
		t.Errorf("%d %v", status, err)
	}
	if status, _, err := send(t, url+"/other", httpfence.Header, "1"); status != 200 || err != nil {
		t.Errorf("another resource: %d %v", status, err)
	}
}

func TestRequestsThatCannotBeJudgedAreRefused(t *testing.T) {
	url := serve(t, httpfence.Require(fence.NewGate(), byPath, httpfence.OfLock("/locks/a")))
	perLock := serve(t, httpfence.Require(fence.NewGate(), byPath, httpfence.PerLock("/locks/a", "/locks/b")))
	for _, c := range []struct {
		name, url string
		headers   []string
		status    int
	}{
		{"no token", url + "/r", nil, http.StatusPreconditionRequired},
		{"no number", url + "/r", []string{httpfence.Header, "0x21"}, http.StatusBadRequest},
		{"zero", url + "/r", []string{httpfence.Header, "0"}, http.StatusBadRequest},
		{"two tokens", url + "/r", []string{httpfence.Header, "33", httpfence.Header, "34"}, http.StatusBadRequest},
		{"another lock", url + "/r", []string{httpfence.Header, "33", httpfence.LockHeader, "/locks/b"}, http.StatusBadRequest},
		{"its lock", url + "/r", []string{httpfence.Header, "33", httpfence.LockHeader, "/locks/a"}, http.StatusOK},
		{"its lock, not named", url + "/r", []string{httpfence.Header, "33"}, http.StatusOK},
		{"name too long", url + "/" + strings.Repeat("x", fence.MaxNameBytes+1), []string{httpfence.Header, "33"}, http.StatusBadRequest},
		{"unguarded", url + "/", nil, http.StatusOK},
		{"per lock, no lock", perLock + "/r", []string{httpfence.Header, "33"}, http.StatusPreconditionRequired},
		{"per lock, unknown lock", perLock + "/r", []string{httpfence.Header, "33", httpfence.LockHeader, "/locks/c"}, http.StatusBadRequest},
	} {
		status, _, err := send(t, c.url, c.headers...)
		if status != c.status || (status != 200) != errors.Is(err, httpfence.ErrRefused) {
			t.Errorf("%s: %d %v", c.name, status, err)
		}
	}
}

// Tokens of two locks do not meet.
func TestEachLockHasItsMark(t *testing.T) {
	url := serve(t, httpfence.Require(fence.NewGate(), byPath, httpfence.PerLock("/locks/a", "/locks/b")))
	for _, c := range []struct {
		lock, token string
		status      int
	}{{"/locks/a", "50", 200}, {"/locks/b", "40", 200}, {"/locks/b", "45", 200}, {"/locks/a", "49", 412}} {
		if status, _, err := send(t, url+"/r", httpfence.Header, c.token, httpfence.LockHeader, c.lock); status != c.status {
			t.Errorf("%+v: %d %v", c, status, err)
		}
	}
}

func TestMarkSurvivesARestartOfTheService(t *testing.T) {
	path := filepath.Join(t.TempDir(), "marks.db")
	for i, c := range []struct {
		token  string
		status int
	}{{"34", 200}, {"33", 412}, {"34", 200}} {
		marks, err := boltfence.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		url := serve(t, httpfence.Require(marks, byPath))
		if status, _, err := send(t, url+"/r", httpfence.Header, c.token); status != c.status {
			t.Errorf("start %d, token %s: %d %v", i, c.token, status, err)
		}
		if err := marks.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The store's own error stays inside.
func TestFailingStoreRefuses(t *testing.T) {
	url := serve(t, httpfence.Require(failing{}, byPath))
	status, _, err := send(t, url+"/r", httpfence.Header, "1")
	if status != http.StatusServiceUnavailable || !errors.Is(err, httpfence.ErrRefused) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%d %v", status, err)
	}
}

type failing struct{}

func (failing) Admit(context.Context, string, fence.Token) error { return errors.New("secret") }

// A request of an older holder that is still being served is told to stop, and
// the newer holder's begins only when it has ended.
func TestNewerHolderWaitsForTheOldersRequest(t *testing.T) {
	begun, written := make(chan string, 2), make(chan string, 2)
	end := make(chan struct{})
	s := httptest.NewServer(httpfence.Require(fence.NewGate(), byPath)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := r.Header.Get(httpfence.Header)
		begun <- token
		if token == "33" {
			<-r.Context().Done()
			var stale *fence.StaleError
			if !errors.As(context.Cause(r.Context()), &stale) || stale.Seen != 34 {
				t.Errorf("the older holder was told %v", context.Cause(r.Context()))
			}
			<-end
		}
		written <- token
	})))
	defer s.Close()
	answers := make(chan int, 2)
	ask := func(token string) {
		status, _, _ := send(t, s.URL+"/r", httpfence.Header, token)
		answers <- status
	}
	go ask("33")
	if got := <-begun; got != "33" {
		t.Fatal(got)
	}
	go ask("34")
	select {
	case got := <-begun:
		t.Errorf("%s has begun while the older request was running", got)
	case <-time.After(50 * time.Millisecond):
	}
	close(end)
	if first, second := <-written, <-written; first != "33" || second != "34" {
		t.Errorf("written in the order %s, %s", first, second)
	}
	<-answers
	<-answers
}

func TestTransportSendsTheGrantOfTheContext(t *testing.T) {
	var got http.Header
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() }))
	defer s.Close()
	outer := fence.NewContext(t.Context(), fence.Grant{Lock: "/locks/a", Token: 33})
	ctx := fence.NewContext(outer, fence.Grant{Lock: "/locks/b", Token: 34})
	for _, c := range []struct {
		transport   httpfence.Transport
		lock, token string
	}{{httpfence.Transport{}, "/locks/b", "34"}, {httpfence.Transport{Lock: "/locks/a"}, "/locks/a", "33"}} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, s.URL, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: &c.transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got.Get(httpfence.Header) != c.token || got.Get(httpfence.LockHeader) != c.lock {
			t.Errorf("sent %q of %q, want %s of %s", got.Get(httpfence.Header), got.Get(httpfence.LockHeader), c.token, c.lock)
		}
		if len(req.Header) != 0 {
			t.Errorf("the caller's request was changed: %v", req.Header)
		}
	}
}

// closed says whether a body was closed, as a RoundTripper must.
type closed struct {
	io.Reader
	done bool
}

func (c *closed) Close() error {
	c.done = true
	return nil
}

func TestTransportDoesNotSendWithoutAGrant(t *testing.T) {
	lost := &fence.StaleError{Resource: "r", Got: 33, Seen: 34}
	over, cancel := context.WithCancelCause(fence.NewContext(t.Context(), fence.Grant{Lock: "/l", Token: 33}))
	cancel(lost)
	for _, c := range []struct {
		name string
		ctx  context.Context
		want error
	}{
		{"no lock", t.Context(), httpfence.ErrNoGrant},
		{"no token", fence.NewContext(t.Context(), fence.Grant{Lock: "/l"}), fence.ErrInvalidToken},
		{"lost", over, fence.ErrStale},
	} {
		body := &closed{Reader: strings.NewReader("x")}
		req, err := http.NewRequestWithContext(c.ctx, http.MethodPut, "http://127.0.0.1:1", body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&httpfence.Transport{}).RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		if !errors.Is(err, c.want) || !body.done {
			t.Errorf("%s: %v, body closed: %v", c.name, err, body.done)
		}
	}
}

// Other problems of other services are left alone, and can still be read.
func TestOtherResponsesAreLeftAlone(t *testing.T) {
	for _, c := range []struct {
		contentType, body string
		status            int
	}{
		{"application/problem+json", `{"type":"urn:other","title":"no"}`, 412},
		{"application/problem+json", `{"type":`, 412},
		{"text/plain", "gone", 412},
		{"application/problem+json", `{"type":"urn:coord:fence:stale","got":"1","seen":"2"}`, 200},
		{"", "", 204},
	} {
		body := &closed{Reader: strings.NewReader(c.body)}
		resp := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.contentType}}, Body: body}
		if err := httpfence.CheckResponse(resp); err != nil || body.done {
			t.Errorf("%+v: %v, closed: %v", c, err, body.done)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != c.body || err != nil {
			t.Errorf("%+v: body %q, %v", c, got, err)
		}
	}
}

func TestContradictoryOptionsPanic(t *testing.T) {
	for name, f := range map[string]func(){
		"no lock store":   func() { httpfence.Require(failing{}, byPath, httpfence.PerLock("/l")) },
		"no locks":        func() { httpfence.Require(fence.NewGate(), byPath, httpfence.PerLock()) },
		"one and several": func() { httpfence.Require(fence.NewGate(), byPath, httpfence.PerLock("/l"), httpfence.OfLock("/l")) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// A late write is refused, every time.
func TestLateWriteIsRefusedAHundredTimes(t *testing.T) {
	url := serve(t, httpfence.Require(fence.NewGate(), byPath))
	for i := range 100 {
		old, fresh := fmt.Sprint(2*i+1), fmt.Sprint(2*i+2)
		for _, c := range []struct {
			token  string
			status int
		}{{old, 200}, {fresh, 200}, {old, 412}} {
			if status, _, err := send(t, url+"/r", httpfence.Header, c.token); status != c.status {
				t.Fatalf("round %d, token %s: %d %v", i, c.token, status, err)
			}
		}
	}
}
