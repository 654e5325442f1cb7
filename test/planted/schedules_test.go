//go:build planted

package planted

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/check"
	"github.com/coordd/coord/recipes/lock"
)

// must notes a call of the schedule that has failed.
func (w *world) must(what string, err error) {
	if err != nil {
		w.stuck = what + ": " + err.Error()
	}
}

func (w *world) create(c *check.Client, path, data string, flags check.Flag) {
	_, err := c.Create(w.soon(patience), path, data, flags)
	w.must("create "+path, err)
}

func (w *world) set(c *check.Client, path, data string) {
	_, err := c.Set(w.soon(patience), path, data, client.AnyVersion)
	w.must("set "+path, err)
}

// zxidMoves waits for the next transaction that a server applies.
func (w *world) zxidMoves(server int) (wait func()) {
	before := w.node(server).Machine().Zxid()
	return func() {
		w.await("a transaction to be applied", func() bool { return w.node(server).Machine().Zxid() > before })
	}
}

// ackBeforeQuorum kills the followers, writes, and then lets them go on without the
// leader.
func ackBeforeQuorum(w *world) {
	lead := w.awaitLeader(-1)
	c := w.client("a", lead)
	w.create(c, "/a", "one", 0)
	for _, i := range others(lead) {
		w.kill(w.hosts[i])
	}
	_, _ = c.Set(w.soon(300*time.Millisecond), "/a", "two", client.AnyVersion) // it is not known what comes of it
	w.kill(w.hosts[lead])
	w.launch(others(lead)...)
	w.awaitLeader(-1)
	time.Sleep(time.Second)
	b := w.client("b", others(lead)...)
	_, err := b.Get(w.soon(patience), "/a", client.Linearizable)
	w.must("read", err)
	w.launch(lead)
}

// forgetResults loses the reply to a write, and starts all servers anew from
// snapshots before the client asks again.
func forgetResults(w *world) {
	lead := w.awaitLeader(-1)
	c := w.client("a", lead)
	w.create(c, "/a", "one", 0)
	var writing sync.WaitGroup
	applied := w.zxidMoves(lead)
	writing.Go(func() { w.set(c, "/a", "two") })
	applied()
	heal := w.net.CutOff("a")
	time.Sleep(3 * latency)
	for i := range servers {
		_, err := w.node(i).Snapshot()
		w.must("snapshot", err)
	}
	w.launch(0, 1, 2)
	w.ready()
	heal()
	writing.Wait()
}

// staleAfterElection takes the leader away from the others when it has committed a
// write and they do not know yet, and holds the next leader's first entry up while
// it is read from.
func staleAfterElection(w *world) {
	lead := w.awaitLeader(-1)
	c := w.client("writer", lead)
	w.create(c, "/a", "one", 0)
	var readers [servers]*check.Client
	for _, i := range others(lead) {
		readers[i] = w.client(fmt.Sprintf("reader-%d", i), i)
	}
	time.Sleep(time.Second)
	var calls sync.WaitGroup
	gate := make(chan struct{})
	for _, i := range others(lead) {
		w.hosts[i].before = func() {
			if w.elected(3 - lead - i) {
				<-gate // the other one has won, and this one is sent its first entry
			}
		}
	}
	applied := w.zxidMoves(lead)
	calls.Go(func() { w.set(c, "/a", "two") })
	applied()
	heal := w.isolate(lead)
	next := -1
	w.await("another to be elected", func() bool {
		for _, i := range others(lead) {
			if w.elected(i) {
				next = i
			}
		}
		return next >= 0
	})
	for range 10 {
		calls.Go(func() {
			_, err := readers[next].Get(w.soon(patience), "/a", client.Linearizable)
			w.must("read", err)
		})
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond)
	close(gate)
	heal()
	calls.Wait()
}

// takeLocks lets two clients take a lock in turn.
func takeLocks(w *world) {
	for round := range 3 {
		for _, name := range []string{"a", "b"} {
			c := w.client(fmt.Sprintf("%s%d", name, round))
			h, err := c.Acquire(w.soon(patience), "/lock", check.Alone, 0, lock.New(c.Client, "/lock").Acquire)
			w.must("acquire", err)
			if err == nil {
				w.must("release", h.Release(w.soon(patience)))
			}
		}
	}
}

// resumeWatches breaks the connection of a client with two watches while both have
// something to tell.
func resumeWatches(w *world) {
	a, b := w.client("a"), w.client("b")
	for _, path := range []string{"/v", "/w"} {
		w.create(b, path, "", 0)
		go func() { _ = a.Watch(context.Background(), path, 0, nil) }() // it ends with the session
	}
	time.Sleep(time.Second)
	for round := range 3 {
		heal := w.net.CutOff("a")
		w.net.Reset("a")
		for _, path := range []string{"/v", "/w"} {
			w.create(b, fmt.Sprintf("%s/%d", path, round), fmt.Sprintf("%s %d", path, round), 0)
		}
		heal()
		time.Sleep(time.Second)
		for _, path := range []string{"/v", "/w"} {
			w.set(b, path, fmt.Sprintf("%s set %d", path, round))
		}
	}
}

// leadAgain moves the leadership away and, after more than a session's timeout,
// back.
func leadAgain(w *world) {
	first := w.awaitLeader(-1)
	c := w.client("a", others(first)...)
	w.create(c, "/e", "e", check.Ephemeral)
	time.Sleep(time.Second)
	for _, to := range []int{others(first)[0], first} {
		_, err := w.node(first).Transfer(w.soon(patience), w.hosts[to].name)
		w.must("transfer", err)
		time.Sleep(6 * time.Second)
	}
	_, err := c.Get(w.soon(patience), "/e", client.Linearizable)
	w.must("read", err)
}

// restoreSnapshot starts a server anew from a snapshot, with a client on it.
func restoreSnapshot(w *world) {
	at := others(w.awaitLeader(-1))[0]
	c := w.client("a", at)
	w.create(c, "/e", "e", check.Ephemeral)
	time.Sleep(time.Second)
	_, err := w.node(at).Snapshot()
	w.must("snapshot", err)
	w.launch(at)
	w.set(c, "/e", "two")
	_, err = c.Get(w.soon(patience), "/e", client.Linearizable)
	w.must("read", err)
}

// transactions makes two numbered znodes at a time.
func transactions(w *world) {
	c := w.client("a")
	w.create(c, "/q", "", 0)
	for n := range 10 {
		_, err := c.Txn(w.soon(patience),
			check.OpCreate("/q/n-", fmt.Sprintf("first %d", n), check.Sequential),
			check.OpCreate("/q/n-", fmt.Sprintf("second %d", n), check.Sequential))
		w.must("transaction", err)
	}
}

// returningLeader is a leader that comes back with entries that nobody else has,
// while the new one's first entry is slow: the transport's clamp is for that. The
// new leader tries to reach the old one at ever longer intervals, and made up its
// mind what to send before the last of them. It is slow for so long that the old
// one is back, and entries are committed, within that interval.
func returningLeader(w *world) {
	w.timeout = 30 * time.Second
	lead := w.awaitLeader(-1)
	a := w.client("a", lead)
	w.create(a, "/a", "one", 0)
	b := w.client("b", others(lead)...)
	time.Sleep(time.Second)
	// When all stop, and hand over to each other, nobody is slow: Raft does not answer
	// what it is asked while its log hangs until it is shut down.
	var over atomic.Bool
	defer over.Store(true)
	for _, i := range others(lead) {
		var held atomic.Bool
		w.hosts[i].before = func() {
			if !over.Load() && w.elected(i) && held.CompareAndSwap(false, true) {
				time.Sleep(2500 * time.Millisecond)
			}
		}
	}
	rejoin := w.isolate(lead)
	for n := range 5 {
		w.must("set", a.SetAsync("/a", fmt.Sprintf("dead %d", n), client.AnyVersion, nil))
	}
	time.Sleep(3 * latency) // they are in its log
	up := w.net.Down(w.hosts[lead].name)
	rejoin()
	w.awaitLeader(lead)
	w.create(b, "/b", "b", 0)
	up()
	time.Sleep(5 * time.Second)
}
