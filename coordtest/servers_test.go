package coordtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coordd/coord/client"
)

// put makes a znode and ends the test if that fails.
func put(t *testing.T, cl *client.Client, path string) {
	t.Helper()
	if err := create(t, cl, path); err != nil {
		t.Fatalf("create %s: %v", path, err)
	}
}

func TestWithoutTheLeaderTheOthersGoOn(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		c := StartCluster(t, 3)
		cl := c.Dial()
		h := acquire(t, cl, "/l")
		old := c.AwaitLeader()
		heal := c.Isolate(old)
		put(t, cl, "/while")
		next := c.AwaitLeader(old)
		if next == old {
			t.Errorf("server %d leads from beyond", old)
		}
		if !h.Held() {
			t.Error("the lock is lost")
		}
		heal()
		knows := func() bool { s := c.local.Server(old).Node().Status(); return s.Ready && !s.Leading && s.Leader != "" }
		if !c.until(10*time.Second, knows) {
			t.Errorf("the old leader has not come back: %+v", c.local.Server(old).Node().Status())
		}
		put(t, cl, "/after")
	})
}

// followers are the servers that do not lead.
func followers(c *Cluster) []int {
	leader := c.AwaitLeader()
	return slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == leader })
}

func TestCutFollowerStaysBehindUntilTheLinkIsHealed(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		c := StartCluster(t, 3)
		cl := c.Dial()
		leader, behind := c.AwaitLeader(), followers(c)[0]
		heal := c.Cut(leader, behind)
		// What stands in the link's buffers is not applied either.
		before := c.local.Server(behind).Node().Status().Zxid
		put(t, cl, "/while")
		after := c.local.Server(leader).Node().Status().Zxid
		if now := c.local.Server(behind).Node().Status().Zxid; now >= after {
			t.Errorf("the cut follower went from %s to %s", before, now)
		}
		heal()
		if !c.until(10*time.Second, func() bool { return c.local.Server(behind).Node().Status().Zxid >= after }) {
			t.Error("the follower does not catch up")
		}
	})
}

func TestStalledDiskHoldsUpWrites(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		c := Start(t)
		cl, reader := c.Dial(), c.Dial()
		resume := c.StallDisk(0)
		done := make(chan error, 1)
		go func() {
			_, err := cl.Create(t.Context(), "/n", nil)
			done <- err
		}()
		select {
		case err := <-done:
			t.Fatalf("written to a disk that stalls: %v", err)
		case <-time.After(300 * time.Millisecond):
		}
		if _, there, err := reader.Exists(t.Context(), "/n"); there || err != nil {
			t.Errorf("a read that needs no disk: %v, %v", there, err)
		}
		resume()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestServerWithADeadDiskEndsAndAnotherLeads: as coordd does after 5 s.
func TestServerWithADeadDiskEndsAndAnotherLeads(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		c := StartCluster(t, 3)
		cl := c.Dial()
		old := c.AwaitLeader()
		began := time.Now()
		resume := c.StallDisk(old)
		put(t, cl, "/while")
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("the others have taken over after %s", took)
		}
		if next := c.AwaitLeader(old); next == old {
			t.Error("a server without a disk leads")
		}
		resume()
		c.Restart(old)
		put(t, cl, "/after")
	})
}

// cluster time, as the Stat of a new znode shows it.
func clusterTime(t *testing.T, cl *client.Client) time.Time {
	t.Helper()
	n, err := cl.Create(t.Context(), "/clock-", nil, client.WithSequential())
	if err != nil {
		t.Fatal(err)
	}
	return time.UnixMilli(n.Stat.Ctime)
}

// TestSteppedClockShowsInTheNextLeadership: it never goes back, and costs nobody
// his session.
func TestSteppedClockShowsInTheNextLeadership(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		c := Start(t)
		cl := c.Dial()
		h := acquire(t, cl, "/l")
		began := clusterTime(t, cl)
		c.StepClock(0, time.Hour)
		if d := clusterTime(t, cl).Sub(began); d > time.Minute {
			t.Errorf("time went on by %s under one leader", d)
		}
		c.Restart(0)
		ahead := clusterTime(t, cl)
		if d := ahead.Sub(began); d < time.Hour || d > time.Hour+time.Minute {
			t.Errorf("the clock was set on by an hour, the cluster's went on by %s", d)
		}
		c.StepClock(0, -24*time.Hour)
		c.Restart(0)
		if at := clusterTime(t, cl); at.Before(ahead) {
			t.Errorf("time went back from %s to %s", ahead, at)
		}
		if !h.Held() {
			t.Error("a step of the clock has cost the lock")
		}
	})
}

// TestOneWrongClockOfThreeIsNotBelieved, also when its server leads.
func TestOneWrongClockOfThreeIsNotBelieved(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		c := StartCluster(t, 3)
		cl := c.Dial()
		began := clusterTime(t, cl)
		wrong := followers(c)[0]
		c.StepClock(wrong, 365*24*time.Hour)
		for leader := c.AwaitLeader(); leader != wrong; leader = c.AwaitLeader() {
			c.Restart(leader)
		}
		if d := clusterTime(t, cl).Sub(began); d > time.Hour {
			t.Errorf("time went on by %s", d)
		}
	})
}

func TestKilledServersKeepWhatTheyHave(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		inBoth(t, func(t *testing.T) {
			c := StartCluster(t, n)
			cl := c.Dial()
			h := acquire(t, cl, "/l")
			var want []string
			for i := range 3 {
				path := fmt.Sprintf("/n%d", i)
				put(t, cl, path)
				want = append(want, path)
				victim := c.AwaitLeader()
				c.Kill(victim)
				c.Kill(victim) // does nothing
				c.Restart(victim)
			}
			if got := c.Paths("/n"); !slices.Equal(got, want) {
				t.Errorf("have %q, want %q", got, want)
			}
			if !h.Held() {
				t.Error("the lock is lost")
			}
		})
	}
}

func TestClusterComesBackFromTheDeathOfAll(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		c := StartCluster(t, 3)
		cl := c.Dial()
		put(t, cl, "/n")
		for i := range 3 {
			c.Kill(i)
		}
		if leader := c.Leader(); leader != -1 {
			t.Errorf("dead server %d leads", leader)
		}
		c.Launch(0)
		c.Launch(1)
		c.AwaitLeader()
		c.Restart(2)
		if got := c.Paths("/n"); len(got) != 1 {
			t.Errorf("have %q", got)
		}
		put(t, cl, "/after")
	})
}

// TestRunningServerCanBeRestarted kills it first.
func TestRunningServerCanBeRestarted(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		c := Start(t)
		cl := c.Dial()
		put(t, cl, "/n")
		c.Restart(0)
		put(t, cl, "/after")
	})
}
