package demo

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// The clock of a story runs at its own pace, and waiting for a moment of it waits
// so much shorter.
func TestTimelineTellsTheSecondsOfItsStory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := newTimeline(&out)
		time.Sleep(1500 * time.Millisecond)
		l.say("cluster", "is ready")
		l.restart(5)
		began := time.Now()
		l.until(15 * time.Second)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("15 s of the story took %s", took)
		}
		l.until(time.Second) // over already
		l.say("node 1", "goes %s", "on")
		want := "  1.50 s  cluster   is ready\n 15.00 s  node 1    goes on\n"
		if out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	})
}

// What was broken is named on the timeline and can be told apart by the caller.
func TestVerdictNamesTheAnomaly(t *testing.T) {
	var out bytes.Buffer
	l := newTimeline(&out)
	err := l.broken(ErrOldOverNew, "A wrote after %s", "B")
	if !errors.Is(err, ErrOldOverNew) || errors.Is(err, ErrLogicalRepeat) || err.Error() != "old over new: A wrote after B" {
		t.Errorf("%v", err)
	}
	if !bytes.Contains(out.Bytes(), []byte("verdict   OLD OVER NEW: A wrote after B\n")) {
		t.Errorf("%s", out.Bytes())
	}
	if err := newTimeline(io.Discard).kept("it held"); err != nil {
		t.Error(err)
	}
}
