package check_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/coordtest"
	"github.com/coordd/coord/internal/check"
	"github.com/coordd/coord/recipes/election"
	"github.com/coordd/coord/recipes/lock"
)

// TestClientsRecordWhatTheyDo does each thing once, through a real server, and
// looks what was written down.
func TestClientsRecordWhatTheyDo(t *testing.T) {
	var h *check.History
	synctest.Test(t, func(t *testing.T) {
		h = check.New(nil)
		c := coordtest.Start(t)
		one, two := h.Client("one", c.Dial(h.Tap())), h.Client("two", c.Dial())
		doEachOnce(t, one, two)
		lead(t, one, two)
		lose(t, c, one, two)
		if err := two.Final(t.Context(), "/"); err != nil {
			t.Error(err)
		}
		if err := two.Close(); err != nil {
			t.Error(err)
		}
		h.Wait()
	})
	for _, v := range check.Check(h, check.Options{}) {
		t.Errorf("a good server is blamed: %v", v)
	}
	for _, want := range []check.Record{
		{Kind: check.Create, Path: "/a", Made: "/a", Data: "one", Outcome: check.Done},
		{Kind: check.Create, Path: "/a", Outcome: check.Refused, Err: check.NodeExists},
		{Kind: check.Create, Path: "/n-", Made: "/n-0000000001", Outcome: check.Done},
		{Kind: check.Set, Path: "/a", Data: "two", Outcome: check.Done},
		{Kind: check.Set, Path: "/a", Data: "three", Outcome: check.Refused, Err: check.BadVersion},
		{Kind: check.Set, Path: "/a", Data: "later", Outcome: check.Done},
		{Kind: check.Set, Path: "/a", Data: "never", Outcome: check.Unknown},
		{Kind: check.Delete, Path: "/gone", Outcome: check.Done},
		{Kind: check.Delete, Path: "/gone", Outcome: check.Refused, Err: check.NoNode},
		{Kind: check.Get, Path: "/a", Data: "later", Outcome: check.Done},
		{Kind: check.Get, Path: "/gone", Outcome: check.Done},
		{Kind: check.Children, Path: "/", Outcome: check.Done},
		{Kind: check.Txn, Outcome: check.Done},
		{Kind: check.Txn, Outcome: check.Refused, Err: check.BadVersion},
		{Kind: check.Watching, Path: "/", Outcome: ""},
		{Kind: check.Event, Path: "/a", Data: "two"},
		{Kind: check.Unwatch, Path: "/"},
		{Kind: check.Acquire, Path: "/lock", Outcome: check.Done},
		{Kind: check.Release, Path: "/lock"},
		{Kind: check.Lost, Path: "/lock", Reason: check.ByMargin},
		{Kind: check.Acquire, Path: "/election", Data: "first", Outcome: check.Done},
		{Kind: check.Proclaim, Path: "/election", Data: "second", Outcome: check.Done},
		{Kind: check.Release, Path: "/election"},
		{Kind: check.Observing, Path: "/election"},
		{Kind: check.Observed, Path: "/election", Data: "first", Outcome: check.Done},
		{Kind: check.Observed, Path: "/election", Data: "second", Outcome: check.Done},
		{Kind: check.LeaderRead, Path: "/election", Data: "second", Outcome: check.Done},
		{Kind: check.Unwatch, Path: "/election"},
		{Kind: check.Ended, Reason: check.BySilent, Outcome: check.Done},
		{Kind: check.Ended, Reason: check.ByClient, Outcome: check.Done},
	} {
		if !slices.ContainsFunc(h.Records(), func(r check.Record) bool { return isLike(r, want) }) {
			t.Errorf("there is no record like %+v", want)
		}
	}
}

// isLike compares what want says.
func isLike(r, want check.Record) bool {
	return r.Kind == want.Kind && r.Path == want.Path && r.Outcome == want.Outcome && r.Err == orAny(want.Err, r.Err) &&
		r.Data == orAny(want.Data, r.Data) && r.Made == orAny(want.Made, r.Made) && r.Reason == orAny(want.Reason, r.Reason)
}

func orAny(want, is string) string {
	if want == "" {
		return is
	}
	return want
}

func doEachOnce(t *testing.T, one, two *check.Client) {
	t.Helper()
	ctx := t.Context()
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		if err := two.Watch(watching, "/", 0, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
	})
	time.Sleep(time.Second)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	fails := func(want, err error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	_, err := one.Create(ctx, "/a", "one", 0)
	must(err)
	_, err = two.Create(ctx, "/a", "again", 0)
	fails(client.ErrNodeExists, err)
	for range 2 {
		_, err = one.Create(ctx, "/n-", "", check.Sequential|check.Ephemeral)
		must(err)
	}
	_, err = two.Set(ctx, "/a", "two", 0)
	must(err)
	_, err = one.Set(ctx, "/a", "three", 0)
	fails(client.ErrBadVersion, err)
	_, err = one.Txn(ctx, check.OpCreate("/gone", "t", 0), check.OpCheck("/a", 1))
	must(err)
	_, err = one.Txn(ctx, check.OpDelete("/gone", client.AnyVersion), check.OpSet("/a", "t2", 7))
	fails(client.ErrBadVersion, err)
	must(two.Delete(ctx, "/gone", client.AnyVersion))
	fails(client.ErrNoNode, two.Delete(ctx, "/gone", client.AnyVersion))
	done := make(chan error, 1)
	must(one.SetAsync("/a", "later", client.AnyVersion, func(err error) { done <- err }))
	must(<-done)
	_, err = two.Get(ctx, "/gone", client.ReadSession)
	fails(client.ErrNoNode, err)
	_, err = two.Get(ctx, "/a", client.Linearizable)
	must(err)
	_, _, err = two.Exists(ctx, "/a", client.ReadStale)
	must(err)
	_, err = two.Children(ctx, "/", client.Linearizable)
	must(err)
	held, err := two.Acquire(ctx, "/lock", check.Alone, 0, lock.New(two.Client, "/lock").Acquire)
	must(err)
	must(held.Release(ctx))
	time.Sleep(time.Second)
	stop()
	watch.Wait()
}

// lead lets one lead, and two look.
func lead(t *testing.T, one, two *check.Client) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	mine, others := election.New(one.Client, "/election"), election.New(two.Client, "/election")
	var observer sync.WaitGroup
	observer.Go(func() {
		if err := two.Observe(ctx, others); !errors.Is(err, context.Canceled) {
			t.Errorf("the observation ended with %v", err)
		}
	})
	l, err := one.Campaign(ctx, mine, "first")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	for _, err := range []error{l.Proclaim(ctx, "second"), two.Leader(ctx, others), l.Resign(ctx)} {
		if err != nil {
			t.Error(err)
		}
	}
	if err := two.Leader(ctx, others); !errors.Is(err, election.ErrNoLeader) {
		t.Errorf("when the leader has resigned: %v", err)
	}
	time.Sleep(time.Second)
	stop()
	observer.Wait()
}

// lose lets one lose its session while it holds a lock and writes.
func lose(t *testing.T, c *coordtest.Cluster, one, two *check.Client) {
	t.Helper()
	ctx := t.Context()
	if _, err := one.Acquire(ctx, "/lock", check.Alone, 0, lock.New(one.Client, "/lock").Acquire); err != nil {
		t.Error(err)
	}
	c.Partition(one.Client)
	one.Silent()
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := one.Set(soon, "/a", "never", client.AnyVersion); !errors.Is(err, client.ErrUnknownOutcome) {
		t.Errorf("a set of a client that is cut off: %v", err)
	}
	held, err := two.Acquire(ctx, "/lock", check.Alone, 0, lock.New(two.Client, "/lock").Acquire)
	if err != nil {
		t.Error(err)
		return
	}
	if err := held.Release(ctx); err != nil {
		t.Error(err)
	}
}
