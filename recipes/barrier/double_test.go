package barrier

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/recipes/internal/rig"
)

// entered is the outcome of an Enter.
type entered struct {
	leave func(context.Context) error
	err   error
}

func entering(ctx context.Context, d *Double) <-chan entered {
	out := make(chan entered, 1)
	go func() {
		leave, err := d.Enter(ctx)
		out <- entered{leave, err}
	}()
	return out
}

func wantIn(t *testing.T, out <-chan entered) func(context.Context) error {
	t.Helper()
	select {
	case e := <-out:
		must(t, e.err)
		return e.leave
	case <-time.After(30 * time.Second):
		t.Fatal("it does not get in")
		return nil
	}
}

func wantWaiting(t *testing.T, outs ...<-chan entered) {
	t.Helper()
	time.Sleep(10 * time.Second)
	for i, out := range outs {
		select {
		case e := <-out:
			t.Fatalf("member %d passed early: %v", i, e.err)
		default:
		}
	}
}

// leaveAll makes all leave at the same time.
func leaveAll(t *testing.T, leaves ...func(context.Context) error) {
	t.Helper()
	var wg sync.WaitGroup
	for _, leave := range leaves {
		wg.Go(func() {
			if err := leave(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// entries are the members' entries that are there.
func entries(c *fakecoord.Cluster, path string) (n int) {
	for _, p := range c.Paths(path + "/") {
		if strings.Contains(p, memberSuffix) {
			n++
		}
	}
	return n
}

// TestNobodyPassesBeforeAllHaveEntered bounces all connections and loses the
// servers' memory of changes while the fifth is missing (curator#1290).
func TestNobodyPassesBeforeAllHaveEntered(t *testing.T) {
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		const n = 5
		var outs []<-chan entered
		for range n - 1 {
			outs = append(outs, entering(t.Context(), NewDouble(connect(t, c, client.WithSessionTimeout(time.Minute)), "/b/d", n)))
			wantWaiting(t, outs...)
			for _, s := range []string{"n1", "n2", "n3"} {
				c.Server(s).CutAll()
			}
			wantWaiting(t, outs...)
		}
		if _, err := connect(t, c).Create(t.Context(), "/elsewhere", nil); err != nil {
			t.Fatal(err)
		}
		c.Forget()
		for _, s := range []string{"n1", "n2", "n3"} {
			c.Server(s).CutAll()
		}
		wantWaiting(t, outs...)
		outs = append(outs, entering(t.Context(), NewDouble(connect(t, c), "/b/d", n)))
		var leaves []func(context.Context) error
		for _, out := range outs {
			leaves = append(leaves, wantIn(t, out))
		}
		leaveAll(t, leaves...)
		if left := entries(c, "/b/d"); left != 0 {
			t.Fatalf("%d entries left", left)
		}
	})
}

// TestLeaveWaitsForAll in every order of leaving.
func TestLeaveWaitsForAll(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
			var outs []<-chan entered
			for range 3 {
				outs = append(outs, entering(t.Context(), NewDouble(connect(t, c), "/d", 3)))
				synctest.Wait()
			}
			var leaves []func(context.Context) error
			for _, out := range outs {
				leaves = append(leaves, wantIn(t, out))
			}
			gone := make(chan error, 3)
			for i, who := range order {
				if len(gone) != 0 {
					t.Fatal("one has left before all were ready to")
				}
				go func() { gone <- leaves[who](t.Context()) }()
				time.Sleep(time.Minute)
				if i == 2 {
					for range 3 {
						must(t, <-gone)
					}
				}
			}
			for _, leave := range leaves { // again
				must(t, leave(t.Context()))
			}
		})
	}
}

// TestRoundsDoNotMix: the same members go round after round; nobody passes a
// round that another has not entered, or leaves one that another is still in.
func TestRoundsDoNotMix(t *testing.T) {
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		const n, rounds = 4, 12
		var mu sync.Mutex
		var came, done [n]int // rounds that each has come for, and is done with
		check := func(who, round int, what string, reached [n]int) {
			for i, r := range reached {
				if r < round {
					t.Errorf("member %d %s round %d, but member %d has come to %d only", who, what, round, i, r)
				}
			}
		}
		r := random(t)
		var wg sync.WaitGroup
		for who := range n {
			d := NewDouble(connect(t, c), "/d", n)
			pauses := make([]time.Duration, 2*rounds)
			for i := range pauses {
				pauses[i] = time.Duration(r.IntN(40)) * time.Millisecond
			}
			wg.Go(func() {
				for round := 1; round <= rounds; round++ {
					time.Sleep(pauses[2*round-2])
					mu.Lock()
					came[who] = round
					mu.Unlock()
					leave, err := d.Enter(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					check(who, round, "passes", came)
					mu.Unlock()
					time.Sleep(pauses[2*round-1])
					mu.Lock()
					done[who] = round
					mu.Unlock()
					if err := leave(t.Context()); err != nil {
						t.Error(err)
					}
					mu.Lock()
					check(who, round, "leaves", done)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
	})
}

// TestMoreComersThanMembers: the first three are a round; the others wait until
// all have left, and are the next one.
func TestMoreComersThanMembers(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		var outs []<-chan entered
		for range 8 {
			outs = append(outs, entering(t.Context(), NewDouble(connect(t, c), "/d", 3)))
			synctest.Wait()
		}
		for range 2 {
			var leaves []func(context.Context) error
			for _, out := range outs[:3] {
				leaves = append(leaves, wantIn(t, out))
			}
			outs = outs[3:]
			wantWaiting(t, outs...)
			leaveAll(t, leaves[0], leaves[1], leaves[2])
		}
		wantWaiting(t, outs...)
		third := entering(t.Context(), NewDouble(connect(t, c), "/d", 3))
		leaveAll(t, wantIn(t, outs[0]), wantIn(t, outs[1]), wantIn(t, third))
	})
}

// TestSurplusComersNoticeThoseWhoGoAway: who was too many is the nth when others
// before it, anywhere in the line, have died.
func TestSurplusComersNoticeThoseWhoGoAway(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		var first []func(context.Context) error
		var outs []<-chan entered
		for range 2 {
			outs = append(outs, entering(t.Context(), NewDouble(connect(t, c), "/d", 2)))
		}
		for _, out := range outs {
			first = append(first, wantIn(t, out))
		}
		var clients []*client.Client
		outs = nil
		for range 5 {
			clients = append(clients, connect(t, c))
			outs = append(outs, entering(t.Context(), NewDouble(clients[len(clients)-1], "/d", 2)))
			synctest.Wait()
		}
		for _, dies := range []int{0, 2, 3} {
			c.Expire(uint64(clients[dies].Session().ID()))
			if e := <-outs[dies]; !errors.Is(e.err, client.ErrSessionExpired) {
				t.Fatal(e.err)
			}
		}
		wantWaiting(t, outs[1], outs[4])
		leaveAll(t, first...)
		leaveAll(t, wantIn(t, outs[1]), wantIn(t, outs[4]))
	})
}

// TestDeadMembers: one that dies while it waits does not count; one that dies
// inside has left.
func TestDeadMembers(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		var clients []*client.Client
		var outs []<-chan entered
		add := func() {
			clients = append(clients, connect(t, c))
			outs = append(outs, entering(t.Context(), NewDouble(clients[len(clients)-1], "/d", 3)))
			synctest.Wait()
		}
		add()
		add()
		c.Expire(uint64(clients[0].Session().ID()))
		if e := <-outs[0]; !errors.Is(e.err, client.ErrSessionExpired) {
			t.Fatal(e.err)
		}
		add()
		wantWaiting(t, outs[1:]...)
		add()
		leaves := []func(context.Context) error{wantIn(t, outs[1]), wantIn(t, outs[2]), wantIn(t, outs[3])}
		gone := make(chan error, 2)
		go func() { gone <- leaves[0](t.Context()) }()
		go func() { gone <- leaves[2](t.Context()) }()
		time.Sleep(time.Minute)
		if len(gone) != 0 {
			t.Fatal("they left before the third")
		}
		c.Expire(uint64(clients[2].Session().ID()))
		must(t, <-gone)
		must(t, <-gone)
		if err := leaves[1](t.Context()); !errors.Is(err, client.ErrSessionExpired) {
			t.Fatal(err)
		}
	})
}

func TestWrongNumberOfMembers(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		ctx := t.Context()
		for _, n := range []int{-1, 0, MaxMembers + 1} {
			if _, err := NewDouble(cl, "/d", n).Enter(ctx); !errors.Is(err, client.ErrBadArguments) {
				t.Fatal(n, err)
			}
		}
		if _, err := NewDouble(connect(t, c, client.WithoutSession()), "/d", 1).Enter(ctx); !errors.Is(err, client.ErrBadArguments) {
			t.Fatal(err)
		}
		out := entering(ctx, NewDouble(cl, "/d", 2))
		synctest.Wait()
		_, err := NewDouble(cl, "/d", 3).Enter(ctx)
		var e *MembersError
		if !errors.Is(err, ErrMembers) || !errors.As(err, &e) || e.Have != 2 || e.Want != 3 {
			t.Fatal(err)
		}
		second := entering(ctx, NewDouble(cl, "/d", 2))
		leave := wantIn(t, out)
		if _, err := NewDouble(cl, "/d", 3).Enter(ctx); !errors.Is(err, ErrMembers) {
			t.Fatal(err)
		}
		leaveAll(t, leave, wantIn(t, second))
		// Nobody uses it any more: it may be of another size now.
		one := NewDouble(cl, "/d", 1)
		leaveAll(t, wantIn(t, entering(ctx, one)))
		if one.Path() != "/d" {
			t.Fatal(one.Path())
		}
	})
}

// TestForeignChildrenAreNoMembers (kazoo PR#569): children of others, with and
// without numbers and data, count for nothing; a folder without data becomes a barrier's, one
// with other data does not.
func TestForeignChildrenAreNoMembers(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		ctx := t.Context()
		for _, p := range []string{"/d", "/d/readme", "/d/lock-0000000000", "/d/x-member-", "/d/-member-12"} {
			_, err := cl.Create(ctx, p, nil)
			must(t, err)
		}
		d := NewDouble(cl, "/d", 3)
		outs := []<-chan entered{entering(ctx, d), entering(ctx, d)}
		wantWaiting(t, outs...)
		_, err := cl.Create(ctx, "/d/foreign-", nil, client.WithSequential())
		must(t, err)
		wantWaiting(t, outs...)
		outs = append(outs, entering(ctx, d))
		leaveAll(t, wantIn(t, outs[0]), wantIn(t, outs[1]), wantIn(t, outs[2]))

		for _, data := range []string{"x", `{"members":0}`, `[]`} {
			_, err := cl.Set(ctx, "/d", []byte(data), client.AnyVersion)
			must(t, err)
			if _, err := d.Enter(ctx); !errors.Is(err, ErrContent) {
				t.Fatalf("%s: %v", data, err)
			}
		}
	})
}

// TestDeletedEntryEndsTheMember: an administrator takes it out.
func TestDeletedEntryEndsTheMember(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		out := entering(ctx, NewDouble(connect(t, c), "/d", 2))
		synctest.Wait()
		c.Delete(c.Paths("/d/")[0])
		if e := <-out; !errors.Is(e.err, ErrRemoved) {
			t.Fatal(e.err)
		}
		// The folder goes with it, and is made anew with the same numbers.
		out = entering(ctx, NewDouble(connect(t, c), "/d", 2))
		synctest.Wait()
		c.Delete(c.Paths("/d/")[0])
		c.Delete("/d")
		other := entering(ctx, NewDouble(connect(t, c), "/d", 2))
		if e := <-out; !errors.Is(e.err, ErrRemoved) {
			t.Fatal(e.err)
		}
		wantWaiting(t, other)
		second := entering(ctx, NewDouble(connect(t, c), "/d", 2))
		leaves := []func(context.Context) error{wantIn(t, other), wantIn(t, second)}
		c.Delete(c.Paths("/d/")[0])
		got := make(chan error, 2)
		for _, leave := range leaves {
			go func() { got <- leave(ctx) }()
		}
		a, b := <-got, <-got
		if errors.Is(a, ErrRemoved) == errors.Is(b, ErrRemoved) || a != nil && b != nil {
			t.Fatal(a, b)
		}
	})
}

// TestCancelAnywhereLeavesNoMember ends the context of Enter after each possible
// time, with answers lost and connections cut.
func TestCancelAnywhereLeavesNoMember(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, client.WithSessionTimeout(time.Minute))
		n := 0
		actions := []fakecoord.Action{fakecoord.Pass, fakecoord.Drop, fakecoord.Cut}
		for wait := time.Duration(0); wait < 300*time.Millisecond; wait += 7 * time.Millisecond {
			n++
			act, countdown := actions[n%3], 1+n%7
			c.OnReply(func(string, *coordpb.Reply) fakecoord.Action {
				if countdown--; countdown == 0 {
					return act
				}
				return fakecoord.Pass
			})
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			_, err := NewDouble(cl, "/d", 2).Enter(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("after %s: %v", wait, err)
			}
			c.OnReply(nil)
		}
		time.Sleep(5 * time.Second)
		if left := entries(c, "/d"); left != 0 {
			t.Fatalf("%d entries left", left)
		}
		a, b := entering(t.Context(), NewDouble(cl, "/d", 2)), entering(t.Context(), NewDouble(cl, "/d", 2))
		leaveAll(t, wantIn(t, a), wantIn(t, b))
	})
}

// TestLeaveWithADoneContextGivesThePlaceUp: the others need not wait for it.
func TestLeaveWithADoneContextGivesThePlaceUp(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		a, b := entering(t.Context(), NewDouble(cl, "/d", 2)), entering(t.Context(), NewDouble(cl, "/d", 2))
		first, second := wantIn(t, a), wantIn(t, b)
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if err := first(done); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		must(t, second(t.Context()))
		must(t, first(t.Context()))

		// The same when it ends while others are waited for, for the first and
		// the last in line.
		a, b = entering(t.Context(), NewDouble(cl, "/d", 2)), entering(t.Context(), NewDouble(cl, "/d", 2))
		for _, leave := range []func(context.Context) error{wantIn(t, a), wantIn(t, b)} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := leave(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
		}
		if left := entries(c, "/d"); left != 0 {
			t.Fatalf("%d entries left", left)
		}
	})
}

// TestWakeUps counts the events of a round of many members.
func TestWakeUps(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		n := rig.Times(40)
		var outs []<-chan entered
		for range n - 1 {
			outs = append(outs, entering(t.Context(), NewDouble(connect(t, c), "/d", n)))
			synctest.Wait()
		}
		before := c.Counts()
		time.Sleep(time.Hour)
		if now := c.Counts(); now.Reads != before.Reads || now.Events != before.Events {
			t.Fatal("members ask while nothing happens")
		}
		outs = append(outs, entering(t.Context(), NewDouble(connect(t, c), "/d", n)))
		var leaves []func(context.Context) error
		for _, out := range outs {
			leaves = append(leaves, wantIn(t, out))
		}
		synctest.Wait()
		entry := c.Counts()
		if woken := entry.Events - before.Events; woken > n+1 { // the last one's first look is an event too
			t.Fatalf("%d events to let %d in", woken, n)
		}
		if lists := entry.Lists - before.Lists; lists > 2 {
			t.Fatalf("the folder was listed %d times to let %d in", lists, n)
		}
		leaveAll(t, leaves...)
		// Each but the first waits for the first: the present state when its watch
		// begins, and the end. The first may look more often.
		if woken := c.Counts().Events - entry.Events; woken > 4*n {
			t.Fatalf("%d events to let %d out", woken, n)
		}
	})
}

// TestRandomFaults runs rounds while connections are cut, answers are lost, and
// members give up or die and are replaced.
func TestRandomFaults(t *testing.T) {
	r := random(t)
	for range rig.Times(8) {
		seed := r.Uint64()
		fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) { randomRounds(t, c, seed) })
	}
}

// randomRounds has workers enter and leave until enough rounds have passed. What
// is checked: whoever gets in does so with others, n in all; at no time are more
// than n inside.
func randomRounds(t *testing.T, c *fakecoord.Cluster, seed uint64) {
	const n, workers, rounds = 3, 5, 30
	faults, choice := newRand(seed), newRand(seed+1)
	c.OnReply(func(string, *coordpb.Reply) fakecoord.Action {
		if faults.IntN(30) == 0 {
			return fakecoord.Cut
		}
		return fakecoord.Pass
	})
	var mu sync.Mutex
	inside, passed, candidates := 0, 0, 0
	pick := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return choice.IntN(n)
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	life := func(cl *client.Client) {
		for ctx.Err() == nil && cl.Session().Context().Err() == nil {
			mu.Lock()
			candidates++
			mu.Unlock()
			limit, cancel := context.WithTimeout(ctx, time.Duration(500+pick(20000))*time.Millisecond)
			leave, err := NewDouble(cl, "/d", n).Enter(limit)
			cancel()
			mu.Lock()
			candidates--
			if err == nil {
				inside++
				passed++
				if inside > n {
					t.Errorf("%d are inside", inside)
				}
				if passed >= n*rounds {
					stop()
				}
			}
			mu.Unlock()
			if err != nil {
				continue
			}
			time.Sleep(time.Duration(pick(50)) * time.Millisecond)
			mu.Lock()
			inside--
			mu.Unlock()
			if pick(12) == 0 {
				c.Expire(uint64(cl.Session().ID()))
			}
			_ = leave(ctx)
		}
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				cl, err := dial(ctx, c)
				if err != nil {
					return
				}
				life(cl)
				_ = cl.Close()
			}
		})
	}
	wg.Wait()
	c.OnReply(nil)
	if passed < n*rounds {
		t.Errorf("only %d have passed: %v", passed, c.Paths("/d"))
	}
	time.Sleep(time.Minute)
	if left := entries(c, "/d"); left != 0 {
		t.Errorf("%d entries left", left)
	}
}

func ExampleMembersError() {
	fmt.Println(&MembersError{Path: "/barriers/import", Have: 5, Want: 4})
	// Output: barrier /barriers/import: it is in use for 5 members, not for 4
}
