package memnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inFakeTime runs f in a bubble, so that a wait that never ends is a failure.
func inFakeTime(t *testing.T, f func(t *testing.T, n *Network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, New()) })
}

// connected makes a connection from host a to host b.
func connected(t *testing.T, n *Network) (here, there net.Conn) {
	t.Helper()
	l, err := n.Listen("b:1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if here, err = n.Dial(t.Context(), "a", "b:1"); err != nil {
		t.Fatal(err)
	}
	if there, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = here.Close() // some tests have closed them
		_ = there.Close()
		if open := n.Open(); open != 0 {
			t.Errorf("the network remembers %d connections", open)
		}
	})
	return here, there
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if n, err := c.Write([]byte(text)); n != len(text) || err != nil {
		t.Fatalf("wrote %d of %q: %v", n, text, err)
	}
}

// soon is a time in which everything arrives that is going to.
const soon = time.Second

// receive reads what is there; "" if nothing comes soon.
func receive(t *testing.T, c net.Conn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, err := c.Read(buf)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func TestBytesArriveInOrderAndTheEndAfterThem(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		here, there := connected(t, n)
		sent := bytes.Repeat([]byte("0123456789"), 3*room/10)
		var got []byte
		var reader sync.WaitGroup
		reader.Go(func() { got, _ = io.ReadAll(there) })
		send(t, here, string(sent))
		if err := here.Close(); err != nil {
			t.Fatal(err)
		}
		reader.Wait()
		if !bytes.Equal(got, sent) {
			t.Errorf("%d bytes of %d came", len(got), len(sent))
		}
	})
}

func TestAddressesAreThoseOfHosts(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		here, there := connected(t, n)
		if here.RemoteAddr().String() != "b:1" || there.LocalAddr().String() != "b:1" || there.LocalAddr().Network() != "mem" {
			t.Errorf("%s -> %s", there.LocalAddr(), here.RemoteAddr())
		}
		if here.LocalAddr().String() != there.RemoteAddr().String() || hostOf(here.LocalAddr().String()) != "a" {
			t.Errorf("%s, %s", here.LocalAddr(), there.RemoteAddr())
		}
	})
}

func TestWhereNobodyListensIsRefused(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		if _, err := n.Dial(t.Context(), "a", "b:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial: %v", err)
		}
		l, err := n.Listen("b:1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.Listen("b:1"); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("listen again: %v", err)
		}
		waiting, err := n.Dial(t.Context(), "a", "b:1")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("close again: %v", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept: %v", err)
		}
		if _, err := waiting.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read of one that was never accepted: %v", err)
		}
		if again, err := n.Listen("b:1"); err != nil {
			t.Errorf("listen after the close: %v", err)
		} else {
			_ = again.Close()
		}
	})
}

func TestDeadlinesEndWaitsAndCanBeTakenBack(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		here, there := connected(t, n)
		began := time.Now()
		_ = there.SetDeadline(began.Add(3 * time.Second))
		if _, err := there.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("read: ended after %s", took)
		}
		send(t, here, "x")
		if _, err := there.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read past the deadline: %v", err)
		}
		_ = there.SetReadDeadline(time.Time{})
		if got := receive(t, there); got != "x" {
			t.Errorf("received %q", got)
		}
		if _, err := there.Write(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write past the deadline: %v", err)
		}
		_ = there.SetWriteDeadline(time.Now().Add(time.Second))
		if k, err := there.Write(make([]byte, 2*room)); k != room || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write into a full connection: %d, %v", k, err)
		}
	})
}

// TestDeadlineThatIsSetWhileSomebodyWaits is what a watchdog does.
func TestDeadlineThatIsSetWhileSomebodyWaits(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		_, there := connected(t, n)
		failed := make(chan error, 1)
		go func() { _, err := there.Read(make([]byte, 1)); failed <- err }()
		synctest.Wait()
		_ = there.SetReadDeadline(time.Now().Add(time.Minute))
		synctest.Wait()
		_ = there.SetReadDeadline(time.Now().Add(time.Second))
		began := time.Now()
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

func TestClosesAreToldAsTCPDoes(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		here, there := connected(t, n)
		waiting := make(chan error, 1)
		go func() { _, err := here.Read(make([]byte, 1)); waiting <- err }()
		synctest.Wait()
		send(t, here, "last")
		_ = here.Close()
		if err := <-waiting; !errors.Is(err, net.ErrClosed) {
			t.Errorf("own read: %v", err)
		}
		if _, err := here.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("own write: %v", err)
		}
		if err := here.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("second close: %v", err)
		}
		if err := here.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("deadline of a closed connection: %v", err)
		}
		if got := receive(t, there); got != "last" {
			t.Errorf("received %q", got)
		}
		if _, err := there.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("read at the end: %v", err)
		}
		if _, err := there.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write to one that is gone: %v", err)
		}
	})
}

func TestDialEndsWithItsContext(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		defer n.CutOff("b")()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if _, err := n.Dial(ctx, "a", "b:1"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}
