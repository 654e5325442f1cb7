package memnet

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestWhatIsCutGoesOnAfterTheHealing: bytes and ends are late, not lost.
func TestWhatIsCutGoesOnAfterTheHealing(t *testing.T) {
	for name, cut := range map[string]func(*Network) func(){
		"link":       func(n *Network) func() { return n.Cut("a", "b") },
		"other way":  func(n *Network) func() { return n.Cut("b", "a") },
		"one host":   func(n *Network) func() { return n.CutOff("a") },
		"other host": func(n *Network) func() { return n.CutOff("b") },
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, n *Network) {
				here, there := connected(t, n)
				heal := cut(n)
				send(t, here, "one")
				send(t, there, "two")
				if got := receive(t, there) + receive(t, here); got != "" {
					t.Errorf("through the cut came %q", got)
				}
				_ = here.Close()
				if _, err := there.Write([]byte("x")); err != nil {
					t.Errorf("the close was seen through the cut: %v", err)
				}
				heal()
				heal() // does nothing
				if got := receive(t, there); got != "one" {
					t.Errorf("afterwards came %q", got)
				}
				if _, err := there.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					t.Errorf("at the end: %v", err)
				}
			})
		})
	}
}

// TestCutOfOneDirectionLeavesTheOther to connections that are there, and none can
// be made.
func TestCutOfOneDirectionLeavesTheOther(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		here, there := connected(t, n)
		heal := n.CutOneWay("a", "b")
		send(t, here, "one")
		send(t, there, "two")
		if got := receive(t, there); got != "" {
			t.Errorf("through the cut came %q", got)
		}
		if got := receive(t, here); got != "two" {
			t.Errorf("the other way came %q", got)
		}
		for _, ends := range [][2]string{{"a", "b:1"}, {"b", "a:1"}} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := n.Dial(ctx, ends[0], ends[1]); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("dial from %s to %s: %v", ends[0], ends[1], err)
			}
			cancel()
		}
		heal()
		heal() // does nothing
		if got := receive(t, there); got != "one" {
			t.Errorf("afterwards came %q", got)
		}
	})
}

// Who cannot hear of the other's end does not learn of it by a write either: gRPC
// opens streams without a pause on a connection whose writes fail and whose reads do
// not, and no time passes.
func TestEndThatIsNotHeardFailsNoWrite(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		here, there := connected(t, n)
		heal := n.CutOneWay("b", "a")
		if err := there.Close(); err != nil {
			t.Fatal(err)
		}
		send(t, here, "into the void")
		heal()
		if _, err := here.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("afterwards a read says %v", err)
		}
		if _, err := here.Write([]byte("more")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("afterwards a write says %v", err)
		}
	})
}

func TestCutsAddUp(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		here, there := connected(t, n)
		first, second, third := n.Cut("a", "b"), n.Cut("a", "b"), n.CutOff("a")
		send(t, here, "x")
		for _, heal := range []func(){first, third, second} {
			if got := receive(t, there); got != "" {
				t.Errorf("%q came although one cut is left", got)
			}
			heal()
		}
		if got := receive(t, there); got != "x" {
			t.Errorf("afterwards came %q", got)
		}
	})
}

func TestOthersAreNotCut(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		here, there := connected(t, n)
		defer n.Cut("a", "c")()
		defer n.CutOff("c")()
		send(t, here, "x")
		if got := receive(t, there); got != "x" {
			t.Errorf("received %q", got)
		}
	})
}

// TestHostReachesItselfAlways, also one that is cut off.
func TestHostReachesItselfAlways(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		defer n.CutOff("b")()
		l, err := n.Listen("b:1")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := n.Dial(t.Context(), "b", "b:1")
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	})
}

func TestDialGoesThroughWhenTheLinkIsHealed(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		l, err := n.Listen("b:1")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		time.AfterFunc(time.Minute, n.Cut("a", "b"))
		began := time.Now()
		c, err := n.Dial(t.Context(), "a", "b:1")
		if err != nil || time.Since(began) != time.Minute {
			t.Fatalf("%v after %s", err, time.Since(began))
		}
		_ = c.Close()
	})
}

// TestFrozenHostDoesNothingAndIsNotMissed: what it has sent arrives, what it does
// afterwards is seen after the thaw.
func TestFrozenHostDoesNothingAndIsNotMissed(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		here, there := connected(t, n)
		send(t, here, "before")
		thaw := n.Freeze("a")
		if got := receive(t, there); got != "before" {
			t.Errorf("received %q", got)
		}
		send(t, there, "to the frozen")
		if got := receive(t, here); got != "" {
			t.Errorf("the frozen host has read %q", got)
		}
		written := make(chan time.Time, 1)
		go func() { _, _ = here.Write([]byte("later")); written <- time.Now() }()
		if got := receive(t, there); got != "" {
			t.Errorf("the frozen host has written %q", got)
		}
		thawed := time.Now()
		thaw()
		if at := <-written; at.Before(thawed) {
			t.Errorf("the frozen host's write went through %s before the thaw", thawed.Sub(at))
		}
		if a, b := receive(t, here), receive(t, there); a != "to the frozen" || b != "later" {
			t.Errorf("after the thaw came %q and %q", a, b)
		}
	})
}

func TestCloseOfAFrozenHostIsSeenAfterTheThaw(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		here, there := connected(t, n)
		blocked := make(chan error, 1)
		thaw := n.Freeze("a")
		go func() { _, err := here.Write([]byte("x")); blocked <- err }()
		synctest.Wait()
		_ = here.Close()
		if err := <-blocked; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the blocked write: %v", err)
		}
		if got := receive(t, there); got != "" { // and no error
			t.Errorf("received %q", got)
		}
		thaw()
		if _, err := there.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("after the thaw: %v", err)
		}
	})
}

func TestFrozenHostAcceptsAndDialsLater(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		l, err := n.Listen("b:1")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		began := time.Now()
		time.AfterFunc(time.Minute, n.Freeze("b"))
		c, err := n.Dial(t.Context(), "a", "b:1") // the kernel answers
		if err != nil || time.Since(began) != 0 {
			t.Fatalf("%v after %s", err, time.Since(began))
		}
		defer c.Close()
		there, err := l.Accept()
		if err != nil || time.Since(began) != time.Minute {
			t.Fatalf("accepted after %s: %v", time.Since(began), err)
		}
		defer there.Close()
		time.AfterFunc(time.Minute, n.Freeze("a"))
		again, err := n.Dial(t.Context(), "a", "b:1")
		if err != nil || time.Since(began) != 2*time.Minute {
			t.Fatalf("dialed after %s: %v", time.Since(began), err)
		}
		_ = again.Close()
	})
}

func TestResetBreaksBothSidesAtOnce(t *testing.T) {
	for name, reset := range map[string]func(*Network){
		"dialer":   func(n *Network) { n.Reset("a") },
		"listener": func(n *Network) { n.Reset("b") },
		"link":     func(n *Network) { n.ResetBetween("b", "a") },
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, n *Network) {
				here, there := connected(t, n)
				send(t, here, "lost")
				n.Reset("c") // somebody else
				reset(n)
				for _, c := range []net.Conn{here, there} {
					if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("read: %v", err)
					}
					if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("write: %v", err)
					}
				}
			})
		})
	}
}

func TestDelayIsThatOfEachByteAndNothingOvertakes(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		here, there := connected(t, n)
		n.Delay("a", "b", 300*time.Millisecond)
		began := time.Now()
		send(t, here, "one")
		n.Delay("a", "b", 0)
		send(t, here, "two")
		_ = here.Close()
		got, err := io.ReadAll(there)
		if string(got) != "onetwo" || err != nil || time.Since(began) != 300*time.Millisecond {
			t.Errorf("%q, %v after %s", got, err, time.Since(began))
		}
	})
}

func TestDelayOfAllLinksIsOverriddenByThatOfOne(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		here, there := connected(t, n)
		arrival := func(want time.Duration) {
			t.Helper()
			began := time.Now()
			send(t, here, "x")
			if got := receive(t, there); got != "x" || time.Since(began) != want {
				t.Errorf("%q after %s, want %s", got, time.Since(began), want)
			}
		}
		n.DelayAll(20 * time.Millisecond)
		arrival(20 * time.Millisecond)
		n.Delay("a", "b", 5*time.Millisecond)
		arrival(5 * time.Millisecond)
		_ = here.Close()
		if _, err := there.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the end: %v", err)
		}
	})
}

func TestDownHostIsResetAndRefusedBothWays(t *testing.T) {
	inFakeTime(t, func(t *testing.T, n *Network) {
		here, _ := connected(t, n)
		l, err := n.Listen("b:1")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		up := n.Down("b")
		if _, err := here.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: %v", err)
		}
		if _, err := n.Dial(t.Context(), "a", "b:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial to it: %v", err)
		}
		if _, err := n.Dial(t.Context(), "b", "b:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial from it: %v", err)
		}
		up()
		c, err := n.Dial(t.Context(), "a", "b:1")
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	})
}
