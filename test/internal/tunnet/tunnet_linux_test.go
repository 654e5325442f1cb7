package tunnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// pair is two hosts, and a service on the second that sends back what it gets.
func pair(t *testing.T) (n *Network, a, b *Host, address string) {
	t.Helper()
	n, err := New(1)
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	host := func(name string) *Host {
		h, err := n.Host(name)
		if errors.Is(err, ErrUnsupported) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	a, b = host("a"), host("b")
	l, err := b.Listen(7000)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	return n, a, b, l.Addr().String()
}

func dial(t *testing.T, from *Host, address string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := from.Dial(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// echo sends a text and returns how long it took to come back whole.
func echo(t *testing.T, c net.Conn, text string, limit time.Duration) (time.Duration, error) {
	t.Helper()
	began := time.Now()
	if err := c.SetDeadline(began.Add(limit)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		return 0, err
	}
	back := make([]byte, len(text))
	if _, err := io.ReadFull(c, back); err != nil {
		return 0, err
	}
	if string(back) != text {
		return 0, fmt.Errorf("%d bytes came back changed", len(text))
	}
	return time.Since(began), nil
}

func TestHostsReachEachOtherAndNobodyElse(t *testing.T) {
	_, a, _, address := pair(t)
	if _, err := echo(t, dial(t, a, address), strings.Repeat("hello ", 50_000), 20*time.Second); err != nil {
		t.Error(err)
	}
	// In our own network somebody else may answer at that address, or for it.
	if c, err := net.DialTimeout("tcp", address, 300*time.Millisecond); err == nil {
		if _, err := echo(t, c, "is it you?", 300*time.Millisecond); err == nil {
			t.Error("the host is in our own network")
		}
		c.Close()
	}
	if c := dial(t, a, address); c.LocalAddr().(*net.TCPAddr).IP.String() != a.IP() { //nolint:forcetypeassert // by its making
		t.Errorf("from %v, want %s", c.LocalAddr(), a.IP())
	}
}

func TestDelayIsKept(t *testing.T) {
	n, a, b, address := pair(t)
	c := dial(t, a, address)
	n.SetBoth(a, b, Link{Delay: 60 * time.Millisecond})
	took, err := echo(t, c, "x", 20*time.Second)
	if err != nil || took < 120*time.Millisecond {
		t.Errorf("%v, %v: want two delays of 60 ms at least", took, err)
	}
}

func TestCutIsSilenceAndHeals(t *testing.T) {
	n, a, b, address := pair(t)
	c := dial(t, a, address)
	n.SetBoth(a, b, Link{Cut: true})
	var timeout net.Error
	if _, err := echo(t, c, "lost?", 300*time.Millisecond); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("err = %v, want silence", err)
	}
	n.Heal()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	back := make([]byte, len("lost?"))
	if _, err := io.ReadFull(c, back); err != nil || string(back) != "lost?" {
		t.Errorf("after the cut: %q, %v", back, err)
	}
}

// What b says is lost, what it hears is not.
func TestCutOfOneDirection(t *testing.T) {
	n, a, b, address := pair(t)
	c := dial(t, a, address)
	n.Set(b, a, Link{Cut: true})
	if _, err := echo(t, c, "x", 300*time.Millisecond); err == nil {
		t.Error("an answer came through the cut")
	}
	_, lost, _ := n.Counts()
	if lost == 0 {
		t.Error("nothing was lost: the packet did not get as far as b")
	}
}

func TestLossIsMadeUpForByTCP(t *testing.T) {
	n, a, b, address := pair(t)
	c := dial(t, a, address)
	n.SetBoth(a, b, Link{Loss: 0.05, Repeat: 0.05, Jitter: 2 * time.Millisecond})
	if _, err := echo(t, c, strings.Repeat("0123456789", 30_000), time.Minute); err != nil {
		t.Error(err)
	}
	if _, lost, repeated := n.Counts(); lost == 0 || repeated == 0 {
		t.Errorf("%d packets lost, %d repeated", lost, repeated)
	}
}

func TestProcessesRunInTheirHost(t *testing.T) {
	_, a, _, _ := pair(t)
	var out strings.Builder
	cmd := exec.Command("cat", "/proc/net/fib_trie")
	cmd.Stdout = &out
	if err := a.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), a.IP()) {
		t.Errorf("the process does not have the address %s:\n%s", a.IP(), out.String())
	}
}
