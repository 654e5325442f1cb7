package cluster

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestDiskWatchReportsAStallWhileItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := make(chan error, 8)
		w := newDiskWatch(5*time.Second, func(err error) { fails <- err })
		release := make(chan struct{})
		done := make(chan error)
		go func() { done <- w.do("write", func() error { <-release; return nil }) }()
		time.Sleep(5*time.Second - time.Nanosecond)
		if len(fails) != 0 {
			t.Fatal("reported too early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if len(fails) != 1 {
			t.Fatal("not reported while the write hangs")
		}
		if err := <-fails; !errors.Is(err, errDiskStalled) {
			t.Errorf("cause %v", err)
		}
		close(release)
		if err := <-done; !errors.Is(err, errDiskFailed) {
			t.Errorf("a write that came through after we gave up: %v", err)
		}
		if err := w.do("write", func() error { t.Error("it was tried"); return nil }); !errors.Is(err, errDiskFailed) {
			t.Errorf("the next write: %v", err)
		}
		if len(fails) != 0 {
			t.Error("reported twice")
		}
	})
}

func TestDiskWatchReportsAnErrorOnceAndRefusesAllAfterIt(t *testing.T) {
	var got []error
	w := newDiskWatch(0, func(err error) { got = append(got, err) })
	if err := w.do("write", func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("input/output error")
	for range 3 {
		if err := w.do("write", func() error { return broken }); err == nil {
			t.Error("no error")
		}
	}
	if len(got) != 1 || !errors.Is(got[0], broken) || !errors.Is(got[0], errDiskFailed) {
		t.Errorf("reported %v", got)
	}
}

func TestDiskWatchSaysNothingAfterClose(t *testing.T) {
	w := newDiskWatch(0, func(err error) { t.Errorf("reported %v", err) })
	w.close()
	if err := w.do("write", func() error { return errors.New("closed") }); err == nil {
		t.Error("no error")
	}
}

func TestDiskWatchIsQuietAboutFastWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDiskWatch(time.Second, func(err error) { t.Errorf("reported %v", err) })
		for range 10 {
			if err := w.do("write", func() error { time.Sleep(900 * time.Millisecond); return nil }); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Minute)
	})
}

// TestWhatComesBeforeAWriteIsAPartOfIt: tests make it hang or fail there.
func TestWhatComesBeforeAWriteIsAPartOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := make(chan error, 8)
		w := newDiskWatch(time.Second, func(err error) { fails <- err })
		var order []string
		w.before = func() error { order = append(order, "before"); return nil }
		if err := w.do("write", func() error { order = append(order, "write"); return nil }); err != nil {
			t.Fatal(err)
		}
		if len(order) != 2 || order[0] != "before" {
			t.Errorf("order %v", order)
		}
		w.before = func() error { time.Sleep(time.Minute); return nil }
		if err := w.do("write", func() error { return nil }); !errors.Is(err, errDiskFailed) {
			t.Errorf("a write after a minute: %v", err)
		}
		if err := <-fails; !errors.Is(err, errDiskStalled) {
			t.Errorf("cause %v", err)
		}
	})
	broken := errors.New("broken")
	var got error
	w := newDiskWatch(0, func(err error) { got = err })
	w.before = func() error { return broken }
	if err := w.do("write", func() error { t.Error("it was tried"); return nil }); !errors.Is(err, broken) || !errors.Is(got, errDiskFailed) {
		t.Errorf("%v, reported %v", err, got)
	}
}
