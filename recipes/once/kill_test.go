package once

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/internal/seed"
)

// TestExactlyOnceAppliedInTwoHundredRoundsOfKills: five hosts share a job; in each
// period one or more of those that run it are killed, cut off, paused over their
// session's timeout, or lose the answer to a write, at a random moment. Each
// period has one marker and is applied once, and the marker names a token that
// was given out for that period.
func TestExactlyOnceAppliedInTwoHundredRoundsOfKills(t *testing.T) {
	s := seed.New(t)
	synctest.Test(t, func(t *testing.T) {
		w := &world{c: fakecoord.New(t, 3), rand: rand.New(rand.NewPCG(s, 1)), tokens: map[string][]fence.Token{}, stop: make(chan struct{})}
		// The job has run before: so nothing is left out of what comes.
		do(t, New(connect(t, w.c), "/jobs/nightly"), "1999-12-31T23:00:00Z", nothing)
		var wg sync.WaitGroup
		const hosts = 5
		for i := range hosts {
			wg.Go(func() { w.host(t, i) })
		}
		rounds := 200
		if testing.Short() {
			rounds = 50
		}
		time.Sleep(time.Duration(rounds)*time.Hour + 30*time.Minute)
		w.calm.Store(true)
		time.Sleep(time.Hour)
		close(w.stop)
		wg.Wait()
		w.check(t, rounds)
	})
}

// world is a cluster, a store, and hosts that come and go.
type world struct {
	c    *fakecoord.Cluster
	s    store
	stop chan struct{}
	calm atomic.Bool // nothing more is broken

	mu     sync.Mutex
	rand   *rand.Rand
	tokens map[string][]fence.Token // given out for each period
	kills  int
}

func (w *world) random(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(n)
}

// host is a process that is started anew whenever it was killed.
func (w *world) host(t *testing.T, i int) {
	for {
		life, kill := context.WithCancel(t.Context())
		cl := connect(t, w.c, client.WithSessionName(fmt.Sprint("host ", i)), client.WithSessionTimeout(2*time.Minute))
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = New(cl, "/jobs/nightly", CatchUp(5)).Run(life, Every(time.Hour), func(ctx context.Context, turn Turn) error {
				return w.work(ctx, cl, turn, kill)
			})
		}()
		select {
		case <-done: // killed
		case <-w.stop:
			kill()
			<-done
			_ = cl.Close()
			return
		}
		_ = cl.Close()
		time.Sleep(time.Duration(w.random(300)) * time.Second)
	}
}

// work applies one period, and something may happen to the process before, in the
// middle or after it.
func (w *world) work(ctx context.Context, cl *client.Client, turn Turn, kill func()) error {
	w.mu.Lock()
	w.tokens[turn.Period] = append(w.tokens[turn.Period], turn.Token)
	w.mu.Unlock()
	at := w.random(5) // 3 and 4: nothing happens
	step := func(n int) bool {
		if n != at || w.calm.Load() {
			return false
		}
		w.mu.Lock()
		w.kills++
		w.mu.Unlock()
		return w.strike(cl, turn, kill)
	}
	time.Sleep(time.Duration(w.random(120)) * time.Second)
	if step(0) {
		return errCrash
	}
	_, err := w.s.once(turn.Key, turn.Token, func() bool { return step(1) })
	if err != nil {
		return err
	}
	if step(2) {
		return errCrash
	}
	return nil
}

// strike does something to the process and says whether it was killed.
func (w *world) strike(cl *client.Client, turn Turn, kill func()) bool {
	session := uint64(turn.Handle.Session().ID())
	switch w.random(5) {
	case 0: // killed: the session ends some time later, nothing is released
		w.c.Expire(session)
		kill()
		return true
	case 1: // the session ends, and the process goes on without looking
		w.c.Expire(session)
	case 2: // an administrator takes the lock away
		w.c.Delete(turn.Handle.Node())
	case 3: // the answers to the next writes are lost with the connection
		left := 1 + w.random(2)
		w.c.OnReply(func(_ string, r *coordpb.Reply) fakecoord.Action {
			if r.Seq == 0 || left == 0 {
				return fakecoord.Pass
			}
			left--
			return fakecoord.Cut
		})
	case 4: // a reply is lost and the session with it
		lost := false
		w.c.OnReply(func(_ string, r *coordpb.Reply) fakecoord.Action {
			if r.Seq == 0 || lost {
				return fakecoord.Pass
			}
			lost = true
			go w.c.Expire(session)
			return fakecoord.Cut
		})
	}
	return false
}

func (w *world) check(t *testing.T, rounds int) {
	all, err := New(connect(t, w.c), "/jobs/nightly").History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(d Done) bool { return d.Period < "2000" }) // caught up with
	if len(all) < rounds+1 {
		t.Errorf("%d periods are done of %d", len(all), rounds+1)
	}
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	attempts := 0
	for i, d := range all {
		if want := begin.Add(time.Duration(i) * time.Hour).Format(secondsFormat); d.Period != want {
			t.Fatalf("period %s is missing", want)
		}
		given := w.tokens[d.Period]
		attempts += len(given)
		if n := w.s.applied["/jobs/nightly@"+d.Period]; n != 1 {
			t.Errorf("%s was applied %d times", d.Period, n)
		}
		found := false
		for j, token := range given {
			found = found || token == d.Token
			if j > 0 && token <= given[j-1] {
				t.Errorf("%s: tokens %v", d.Period, given)
			}
		}
		if !found || d.By == "" {
			t.Errorf("%+v, but tokens %v", d, given)
		}
	}
	if w.kills < rounds/4 || attempts == len(all) {
		t.Errorf("%d strikes and %d attempts: too few to prove anything", w.kills, attempts)
	}
	t.Logf("%d periods, %d strikes, %d attempts", len(all), w.kills, attempts)
	for _, e := range w.c.Paths("/jobs/nightly/lock/") {
		t.Errorf("left behind: %s", e)
	}
}

// TestCancelAnywhereLeavesNothingBehind: the context ends at each possible time,
// with answers lost and connections cut.
func TestCancelAnywhereLeavesNothingBehind(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, client.WithSessionTimeout(time.Minute))
		j := New(cl, "/j")
		actions := []fakecoord.Action{fakecoord.Pass, fakecoord.Drop, fakecoord.Cut}
		n, finished := 0, 0
		for wait := time.Duration(0); wait < 700*time.Millisecond; wait += 7 * time.Millisecond {
			n++
			act, countdown := actions[n%3], n%9
			c.OnReply(func(string, *coordpb.Reply) fakecoord.Action {
				if countdown--; countdown == 0 {
					return act
				}
				return fakecoord.Pass
			})
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			period := fmt.Sprintf("%03d", n)
			d, err := j.Do(ctx, period, func(ctx context.Context, _ Turn) error {
				select {
				case <-time.After(100 * time.Millisecond):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			cancel()
			c.OnReply(nil)
			c.Server("n1").CutAll()
			c.Server("n2").CutAll()
			if err == nil {
				finished++
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("after %s: %v", wait, err)
			}
			marked, ok, e := j.Done(t.Context(), period)
			if e != nil || ok != (err == nil) || ok && marked != d {
				t.Fatalf("after %s: %+v %v, but marked %v %+v %v", wait, d, err, ok, marked, e)
			}
		}
		time.Sleep(10 * time.Second)
		if left := c.Paths("/j/lock/"); len(left) != 0 || finished < 10 || finished > n-10 {
			t.Fatalf("left behind: %v; %d of %d finished", left, finished, n)
		}
	})
}
