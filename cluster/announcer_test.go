package cluster

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// sharedLog is what several goroutines log, as text.
type sharedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *sharedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *sharedLog) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func TestEachLeadershipIsAnnouncedOnceHoweverManyReignsItHas(t *testing.T) {
	var out sharedLog
	a := announcer{log: slog.New(slog.NewTextHandler(&out, nil))}
	a.look(0, false)
	for range 5 {
		a.look(3, true)
		a.reigns(3)
		a.fails(errors.New("refused"))
	}
	if n := out.count("\n"); n != 2 {
		t.Errorf("%d lines of one leadership whose proposals fail, want 2", n)
	}
	a.look(3, false)
	a.look(3, false)
	a.reigns(5)
	a.reigns(6) // the end of 5 was not seen
	a.fails(errors.New("refused"))
	for text, want := range map[string]int{"leads no more": 2, "leader_changed": 3, "a proposal failed": 2} {
		if n := out.count(text); n != want {
			t.Errorf("%q is logged %d times, want %d", text, n, want)
		}
	}
}

// While Raft tries to hand leadership to a server that does not answer, it
// refuses proposals, and each refusal ends a reign.
func TestFailedTransferIsNoStormInTheLog(t *testing.T) {
	var out sharedLog
	tune := func(c *Config) {
		if c.Name == "n1" {
			c.Logger = slog.New(slog.NewTextHandler(&out, nil))
		}
	}
	inFakeTime(t, 3, tune, func(w *world) {
		w.start()
		w.awaitFormed()
		if l := w.leader(); l != "n1" {
			if _, err := w.node(l).Transfer(w.t.Context(), "n1"); err != nil {
				t.Fatal(err)
			}
			w.eventually(5*time.Second, "n1 leads", func() bool { return w.leader() == "n1" })
		}
		c := w.open("n1", 30*time.Second)
		before := out.count("this server leads")
		w.net.cut(w.hosts["n1"].peer.Address, w.hosts["n3"].peer.Address)
		checkDone(t, c.send(createOp("/behind"))) // n3 is not up to date, and cannot be brought there
		transferred := make(chan error, 1)
		go func() {
			_, err := w.node("n1").Transfer(w.t.Context(), "n3")
			transferred <- err
		}()
		stop := make(chan struct{})
		go func() {
			time.Sleep(time.Second)
			close(stop)
		}()
		writeOn(t, []*client{c}, stop)
		if err := <-transferred; !errors.Is(err, ErrRefused) {
			t.Errorf("transfer to a server that is cut off: %v", err)
		}
		if w.node("n1").Counters().Unsettled == 0 {
			t.Error("no proposal failed, so this shows nothing")
		}
		if n := out.count("a proposal failed"); n != 1 {
			t.Errorf("%d lines about failed proposals", n)
		}
		if n := out.count("this server leads") - before; n != 0 {
			t.Errorf("%d lines about a leadership that never ended", n)
		}
		w.net.heal(w.hosts["n1"].peer.Address, w.hosts["n3"].peer.Address)
	})
}
