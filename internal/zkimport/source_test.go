package zkimport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coord/internal/testcerts"
	"github.com/coordd/coord/wire"
)

// TestUnreachableEnsembleNamesEachHost: who is not there, who is not ZooKeeper, and
// who says nothing.
func TestUnreachableEnsembleNamesEachHost(t *testing.T) {
	t.Parallel()
	listen := func(say string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				nc, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = readFrame(nc, 1<<10) // what is not read would break the connection otherwise
				_, _ = io.WriteString(nc, say)
				nc.Close()
			}
		}()
		return l.Addr().String()
	}
	gone := listen("")
	web := listen("HTTP/1.1 400 Bad Request\r\n\r\n")
	start := time.Now()
	_, err := Open(t.Context(), SourceConfig{Hosts: []string{"127.0.0.1:1", gone, web}, Timeout: 600 * time.Millisecond})
	var all *UnreachableError
	if !errors.As(err, &all) || !errors.Is(err, ErrUnreachable) || len(all.Tried) != 3 {
		t.Fatal(err)
	}
	for i, want := range []string{"refused", "closed the connection", "not one of ZooKeeper's"} {
		if !strings.Contains(all.Tried[i].Err.Error(), want) {
			t.Errorf("%s: %v", all.Tried[i].Host, all.Tried[i].Err)
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	// Where nobody listens there is nothing to wait for.
	start = time.Now()
	if _, err := Open(t.Context(), SourceConfig{Hosts: []string{"127.0.0.1:1"}, Timeout: time.Minute}); !errors.Is(err, ErrUnreachable) || time.Since(start) > 10*time.Second {
		t.Errorf("%v after %s", err, time.Since(start))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, SourceConfig{Hosts: []string{gone}, Timeout: time.Minute}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended by the context: %v", err)
	}
}

func TestRefusedCredentialsAreNoReasonToTryAgain(t *testing.T) {
	t.Parallel()
	f := newFake(t, 2)
	_, err := Open(t.Context(), SourceConfig{Hosts: f.hosts(), Digests: []string{superDigest, "refused:refused"}, Timeout: time.Minute})
	if !errors.Is(err, ErrAuth) || !errors.Is(err, wire.AuthFailed) {
		t.Error(err)
	}
}

// TestSourceGoesOnAtAnotherServer cuts connections in the middle: what is read is
// whole all the same, and never older than what was seen.
func TestSourceGoesOnAtAnotherServer(t *testing.T) {
	t.Parallel()
	f := newFake(t, 2)
	f.do(create("/a", ""))
	want := 2
	for _, name := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		f.do(create("/a/"+name, ""), create("/a/"+name+"/x", ""))
		want += 2
	}
	var answers atomic.Int64
	f.before = func(string, wire.Type, string) bool { return answers.Add(1)%40 == 0 }
	s := f.open()
	v := look(t, s, "/")
	if v.Znodes() != want || v.Gone != 0 || len(v.faults) > 0 {
		t.Errorf("%d znodes of %d, %d gone, %v", v.Znodes(), want, v.Gone, v.faults)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, host := range f.hosts() {
		if f.asked[host] == 0 {
			t.Errorf("%s was never asked: %v", host, f.asked)
		}
	}
}

// TestSourceThatStaysAwayIsGivenUpOnce: hundreds of requests wait, and all of them
// end together.
func TestSourceThatStaysAwayIsGivenUpOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t, 1)
	for i := range 200 {
		f.do(create("/"+strings.Repeat("n", i+1), ""))
	}
	s, err := Open(t.Context(), SourceConfig{Hosts: f.hosts(), Timeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f.mu.Lock()
	f.before = func(_ string, typ wire.Type, path string) bool {
		if typ == wire.GetACL && len(path) > 50 {
			f.nets[0].Close()
			return true
		}
		return false
	}
	f.mu.Unlock()
	start := time.Now()
	if _, err := Look(t.Context(), s, "/", nil); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestNoFrameIsBelievedToBeLongerThanItIs: a length costs nothing until its bytes
// have come.
func TestNoFrameIsBelievedToBeLongerThanItIs(t *testing.T) {
	for _, x := range []struct {
		frame string
		most  int
		want  error
	}{
		{"\xff\xff\xff\xff", maxReplyBytes, errNoZooKeeper},
		{"\x00\x00\x04\x01", 1 << 10, errNoZooKeeper},
		{"\x10\x00\x00\x00abc", maxReplyBytes, io.EOF},
		{"\x00\x00\x00\x05abc", maxReplyBytes, io.ErrUnexpectedEOF},
		{"", maxReplyBytes, errClosed},
		{"\x00\x00", maxReplyBytes, io.ErrUnexpectedEOF},
	} {
		allocated := testing.AllocsPerRun(1, func() {
			if _, err := readFrame(strings.NewReader(x.frame), x.most); !errors.Is(err, x.want) {
				t.Errorf("%q: %v, want %v", x.frame, err, x.want)
			}
		})
		if allocated > 20 {
			t.Errorf("%q: %v allocations", x.frame, allocated)
		}
	}
}

// TestSourceTalksTLS to an ensemble that wants to know who asks.
func TestSourceTalksTLS(t *testing.T) {
	t.Parallel()
	ca := testcerts.New(t, "ca")
	f := newFake(t, 1)
	f.do(create("/a", "x"))
	plain := f.nets[0].Addr().String()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{ca.Pair(t, "zk1", testcerts.Both)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool(),
	})
	if err != nil {
		t.Fatal(err)
	}
	f.nets = append(f.nets, l)
	f.wg.Go(func() { f.accept(l) })
	host := []string{l.Addr().String()}
	s, err := Open(t.Context(), SourceConfig{Hosts: host, TLS: &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{ca.Pair(t, "me", testcerts.ClientOnly)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if v := look(t, s, "/a"); v.Znodes() != 1 {
		t.Errorf("%d znodes", v.Znodes())
	}
	for what, cfg := range map[string]SourceConfig{
		"nobody":          {Hosts: host, TLS: &tls.Config{RootCAs: ca.Pool()}},
		"plain text":      {Hosts: host},
		"TLS to plain":    {Hosts: []string{plain}, TLS: &tls.Config{RootCAs: ca.Pool()}},
		"other authority": {Hosts: host, TLS: &tls.Config{RootCAs: testcerts.New(t, "other").Pool()}},
	} {
		cfg.Timeout = 500 * time.Millisecond
		if s, err := Open(t.Context(), cfg); !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %v", what, err)
			if err == nil {
				s.Close()
			}
		}
	}
}
