package coordtest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/coordd/coord/client"
)

// create makes a znode and returns its error.
func create(t *testing.T, cl *client.Client, path string, opts ...client.CreateOption) error {
	t.Helper()
	_, err := cl.Create(t.Context(), path, nil, opts...)
	return err
}

func TestDroppedReplyOfASessionIsAskedForAgain(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		c := Start(t)
		cl := c.Dial()
		c.DropReply(cl)
		made, err := cl.Create(t.Context(), "/n-", nil, client.WithSequential())
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Paths("/n-"); !slices.Equal(got, []string{made.Path}) {
			t.Errorf("made %s, there are %q", made.Path, got)
		}
		if err := create(t, cl, "/next"); err != nil {
			t.Error(err)
		}
	})
}

// TestDroppedReplyCannotBeToldFromALostRequest: without a session nobody can ask.
func TestDroppedReplyCannotBeToldFromALostRequest(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		c := Start(t)
		cl := c.Dial(client.WithoutSession())
		c.DropReply(cl)
		if err := create(t, cl, "/n"); !errors.Is(err, client.ErrUnknownOutcome) {
			t.Errorf("create with a dropped reply: %v", err)
		}
		if got := c.Paths("/n"); len(got) != 1 {
			t.Errorf("it was not done: %q", got)
		}
		if err := create(t, cl, "/next"); err != nil {
			t.Error(err)
		}
	})
}

// short makes sessions expire soon, for tests in real time.
func short() Option { return SessionTimeout(3 * time.Second) }

func TestPausedHolderDoesNotNoticeUntilItIsResumed(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		c := Start(t, short())
		cl := c.Dial()
		h := acquire(t, cl, "/l")
		resume := c.Pause(cl)
		next := acquire(t, c.Dial(), "/l")
		if !h.Held() || h.Context().Err() != nil || cl.Session().Context().Err() != nil {
			t.Errorf("the paused holder has noticed: held %v, %v", h.Held(), h.Context().Err())
		}
		if next.FencingToken() <= h.FencingToken() {
			t.Errorf("token %d after %d", next.FencingToken(), h.FencingToken())
		}
		resume()
		if h.Held() {
			t.Error("the resumed holder has looked at its clock and not noticed")
		}
		lostWithin(t, h, time.Second)
		resume() // does nothing
	})
}

func TestShortPauseCostsNothing(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		c := Start(t, SessionTimeout(2*time.Second))
		cl := c.Dial()
		h := acquire(t, cl, "/l")
		resume := c.Pause(cl)
		time.Sleep(500 * time.Millisecond)
		resume()
		time.Sleep(time.Minute)
		if !h.Held() {
			t.Errorf("lost: %v", h.Context().Err())
		}
		if err := create(t, cl, "/n"); err != nil {
			t.Error(err)
		}
	})
}

// TestPausesAddUp: the clock stands still until the last one ends.
func TestPausesAddUp(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		c := Start(t)
		cl := c.Dial()
		began := cl.Session().Now()
		first, second := c.Pause(cl), c.Pause(cl)
		time.Sleep(time.Minute)
		first()
		if now := cl.Session().Now(); now != began {
			t.Errorf("the clock went on by %s", now-began)
		}
		second()
		if now := cl.Session().Now(); now-began != time.Minute {
			t.Errorf("after a minute the clock shows %s", now-began)
		}
	})
}

func TestPartitionedHolderLosesTheLockBeforeTheNextHasIt(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		c := Start(t, short())
		cl, other := c.Dial(), c.Dial()
		h := acquire(t, cl, "/l")
		heal := c.Partition(cl)
		lost := make(chan time.Time, 1)
		go func() { <-h.Lost(); lost <- time.Now() }()
		acquire(t, other, "/l")
		granted := time.Now()
		if at := <-lost; at.After(granted) {
			t.Errorf("the loss was seen %s after the next grant", at.Sub(granted))
		}
		heal()
		if err := create(t, cl, "/n"); !errors.Is(err, client.ErrSessionExpired) {
			t.Errorf("a write in the old session: %v", err)
		}
	})
}

func TestShortPartitionIsSurvived(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		c := Start(t, SessionTimeout(5*time.Second))
		cl := c.Dial()
		h := acquire(t, cl, "/l")
		heal := c.Partition(cl)
		time.AfterFunc(500*time.Millisecond, heal)
		began := time.Now()
		if err := create(t, cl, "/n"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 500*time.Millisecond {
			t.Errorf("the write was answered after %s", took)
		}
		if !h.Held() {
			t.Error("the lock is lost")
		}
	})
}

// TestAbandonedDisturbancesEndWithTheTest: a test may fail in the middle.
func TestAbandonedDisturbancesEndWithTheTest(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		c := StartCluster(t, 3)
		a, b := c.Dial(), c.Dial()
		c.Pause(a)
		c.Partition(b)
		c.DropReply(b)
		c.Isolate(0)
		c.StallDisk(1)
		c.Cut(1, 2)
	})
}
