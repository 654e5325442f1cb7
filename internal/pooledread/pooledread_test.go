package pooledread

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// countingPool hands out fresh buffers and knows how many are out.
type countingPool struct {
	mu  sync.Mutex
	out int
}

func (p *countingPool) Get(size int) *[]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out++
	b := make([]byte, size)
	return &b
}

func (p *countingPool) Put(*[]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out--
}

func (p *countingPool) held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out
}

func tcpPair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

type result struct {
	text string
	err  error
}

// read reads once in the background.
func read(r *Reader, pool *countingPool, size int) <-chan result {
	done := make(chan result, 1)
	go func() {
		buf, n, err := r.ReadOnReady(size, pool)
		res := result{err: err}
		if buf != nil {
			res.text = string((*buf)[:n])
			pool.Put(buf)
		}
		done <- res
	}()
	return done
}

// TestSilentConnectionHoldsNoBuffer is what the package is for.
func TestSilentConnectionHoldsNoBuffer(t *testing.T) {
	near, far := tcpPair(t)
	if New(near).raw == nil {
		t.Skip("sockets cannot be waited for on this system")
	}
	r, pool := New(near), &countingPool{}
	for _, text := range []string{"one", "two"} {
		done := read(r, pool, 8)
		for range 20 { // for as long as nothing comes
			time.Sleep(time.Millisecond)
			if n := pool.held(); n != 0 {
				// The one attempt that finds nothing may be under way.
				deadline := time.Now().Add(5 * time.Second)
				for pool.held() != 0 {
					if time.Now().After(deadline) {
						t.Fatalf("%d buffers are held by a silent connection", n)
					}
					time.Sleep(time.Millisecond)
				}
			}
		}
		if _, err := far.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := <-done; got.text != text || got.err != nil {
			t.Fatalf("read %q, %v", got.text, got.err)
		}
	}
	if n := pool.held(); n != 0 {
		t.Fatalf("%d buffers are lost", n)
	}
}

func TestReadsWhatFitsAndThenTheRest(t *testing.T) {
	near, far := tcpPair(t)
	pool := &countingPool{}
	for name, r := range map[string]*Reader{"socket": New(near), "wrapped": New(struct{ net.Conn }{near})} {
		if _, err := far.Write([]byte("abcdef")); err != nil {
			t.Fatal(err)
		}
		got := ""
		for len(got) < 6 {
			part := <-read(r, pool, 4)
			if part.err != nil || part.text == "" || len(part.text) > 4 {
				t.Fatalf("%s: %q, %v", name, part.text, part.err)
			}
			got += part.text
		}
		if got != "abcdef" {
			t.Fatalf("%s: read %q", name, got)
		}
	}
}

func TestEndsAreToldAndCostNoBuffer(t *testing.T) {
	for name, end := range map[string]struct {
		do   func(near, far net.Conn)
		want error
	}{
		"the other side closes": {func(_, far net.Conn) { far.Close() }, io.EOF},
		"closed here":           {func(near, _ net.Conn) { near.Close() }, net.ErrClosed},
		"deadline":              {func(near, _ net.Conn) { near.SetReadDeadline(time.Now()) }, os.ErrDeadlineExceeded},
	} {
		for _, wrapped := range []bool{false, true} {
			near, far := tcpPair(t)
			pool := &countingPool{}
			r := New(near)
			if wrapped {
				r = New(struct{ net.Conn }{near})
			}
			done := read(r, pool, 8)
			end.do(near, far)
			if got := <-done; !errors.Is(got.err, end.want) || got.text != "" {
				t.Errorf("%s, wrapped %v: %q, %v", name, wrapped, got.text, got.err)
			}
			if n := pool.held(); n != 0 {
				t.Errorf("%s, wrapped %v: %d buffers are lost", name, wrapped, n)
			}
		}
	}
}
