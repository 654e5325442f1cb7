package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/client"
)

func TestDeleteAllRefusesWithoutATerminal(t *testing.T) {
	t.Parallel()
	fresh(t, "/da-pipe")
	must(t, "create", "-p", "/da-pipe/a/b")
	on(t, "/da-pipe\n", "deleteall", "/da-pipe").
		want(t, exitUsage, "", "coordctl: deleteall needs a terminal to ask on, or --yes\n")
	on(t, "", "deleteall", "--dry-run", "/da-pipe").want(t, exitOK, "/da-pipe\n/da-pipe/a\n/da-pipe/a/b\n", "")
	on(t, "", "deleteall", "--yes", "/da-pipe/a").want(t, exitOK, "deleted 2 znodes\n", "")
	on(t, "", "ls", "-R", "/da-pipe").want(t, exitOK, "/da-pipe\n", "")
	on(t, "", "deleteall", "--yes", "/da-nope").want(t, exitNotFound, "", "coordctl: deleteall /da-nope: no such node\n")
}

func TestWhatDeleteAllAsks(t *testing.T) {
	for _, c := range []struct {
		s       survey
		serious bool
	}{
		{survey{root: "/a/b", znodes: 1}, false},
		{survey{root: "/a/b", znodes: 100}, false},
		{survey{root: "/a/b", znodes: 101}, true},
		{survey{root: "/a", znodes: 1}, true},
		{survey{root: "/a/b", znodes: 2, ephemerals: 1}, true},
	} {
		if got := c.s.serious(); got != c.serious {
			t.Errorf("%+v: %v", c.s, got)
		}
	}
}

// 20,000 znodes go in one command, although another client creates more below
// them all the time until it finds the root gone.
func TestDeleteAllWithConcurrentCreates(t *testing.T) {
	t.Parallel()
	fresh(t, "/da-race")
	count := 20_000
	if testing.Short() {
		count = 2_000
	}
	c := dial(t)
	ctx := t.Context()
	fill(t, c, "/da-race", count)
	var wg sync.WaitGroup
	stop, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	made := 0
	wg.Go(func() {
		for i := 0; stop.Err() == nil; i++ {
			if _, err := c.Create(stop, fmt.Sprintf("/da-race/d%03d/late-%d", i%10, i), nil); err == nil {
				made++
			} else if _, ok, _ := c.Exists(stop, "/da-race"); !ok {
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	on(t, "", "deleteall", "--yes", "/da-race").want(t, exitOK, "~deleted ", "")
	wg.Wait()
	if made == 0 {
		t.Error("nothing was created meanwhile")
	}
	on(t, "", "stat", "/da-race").want(t, exitNotFound, "", "~no such node")
}

// fill makes root and count nodes below it, in folders.
func fill(t *testing.T, c *client.Client, root string, count int) {
	t.Helper()
	if _, err := c.Create(t.Context(), root, nil); err != nil {
		t.Fatal(err)
	}
	const perFolder = 200
	for f := range count / perFolder {
		folder := fmt.Sprintf("%s/d%03d", root, f)
		ops := []client.Op{client.OpCreate(folder, nil)}
		for i := range perFolder - 1 {
			ops = append(ops, client.OpCreate(fmt.Sprintf("%s/n%03d", folder, i), []byte("x")))
		}
		if _, err := c.Txn(t.Context(), ops...); err != nil {
			t.Fatal(err)
		}
	}
}

// A deletion that cannot keep up ends, and says what is left.
func TestDeleteAllGivesUp(t *testing.T) {
	t.Parallel()
	fresh(t, "/da-lost")
	c := dial(t)
	if _, err := c.Create(t.Context(), "/da-lost", nil); err != nil {
		t.Fatal(err)
	}
	var out, errs lockedBuffer
	e := newEnv(strings.NewReader(""), &out, &errs)
	e.timeout = 20 * time.Second
	d := &deleter{env: e, client: c, root: "/da-lost", look: func() {
		if _, err := c.Create(t.Context(), "/da-lost/again-", nil, client.WithSequential()); err != nil {
			t.Error(err)
		}
	}}
	err := d.run(t.Context())
	if _, code := classify(err); code != exitPrecondition || !strings.Contains(err.Error(), "2 znodes left after 8 passes") {
		t.Errorf("error %v", err)
	}
	must(t, "deleteall", "--yes", "/da-lost")
}

// What may not be deleted stops the deletion, and is named.
func TestDeleteAllStopsAtWhatItMayNot(t *testing.T) {
	t.Parallel()
	root := fmt.Sprintf("/da-acl-%d", time.Now().UnixNano()) // nobody can delete it
	must(t, "create", "-p", root+"/a/b")
	must(t, "acl", "set", root+"/a", "world:anyone:r", "ip:192.0.2.1:rwcda")
	on(t, "", "deleteall", "--yes", root).want(t, exitNotPermitted, "", "~delete "+root+"/a/b: not permitted")
	on(t, "", "stat", root+"/a/b").want(t, exitOK, "~persistent", "")
}

// A recursive deletion from inside of a watch's callback does not hang.
func TestDeleteAllFromAWatch(t *testing.T) {
	t.Parallel()
	fresh(t, "/da-watch")
	c := dial(t)
	fill(t, c, "/da-watch", 1_000)
	w := start(t, sharedCluster(t), nil, "watch", "/da-watch", "--count", "1", "--exec", "'"+exe+"' deleteall --yes /da-watch")
	eventually(t, "the watch stands", func() bool {
		if _, err := c.Set(t.Context(), "/da-watch", []byte("go"), client.AnyVersion); err != nil {
			return true
		}
		select {
		case <-w.done:
			return true
		case <-time.After(50 * time.Millisecond):
			return false
		}
	})
	if code := w.wait(t); code != exitOK {
		t.Errorf("exit code %d\n%s", code, w.stderr.String())
	}
	on(t, "", "stat", "/da-watch").want(t, exitNotFound, "", "~no such node")
}
