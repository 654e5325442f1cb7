package test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/wire"
)

// zkFigure is a figure of a server, as mntr tells it.
func zkFigure(t testing.TB, host, name string) int {
	t.Helper()
	for line := range strings.Lines(zkWord(t, host, "mntr")) {
		if value, ok := strings.CutPrefix(line, "zk_"+name+"\t"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("mntr has no zk_%s", name)
	return 0
}

// ClickHouse#28190: child watches fired on the data of a child. ZOOKEEPER-4475: a
// recursive watch was told of lists of children because another client watched one.
func TestZooKeepersWatchesTellWhatTheyAreForAndNoMore(t *testing.T) {
	t.Parallel()
	c := startProcesses(t, 1, "")
	host := c.nodes[0].zookeeper()
	recursive, lister, writer := zkOpen(t, host), zkOpen(t, host), zkOpen(t, host)
	writer.must(zkCreate("/a", "", 0))
	writer.must(zkCreate("/a/b", "", 0))
	recursive.must(wire.Request{Op: wire.Op{Type: wire.AddWatch, Path: "/a"}, Mode: wire.AddPersistentRecursive})
	lister.must(zkRead(wire.GetChildren, "/a", true))
	lister.must(zkRead(wire.GetChildren, "/a/b", true))
	writer.must(zkSet("/a/b", "x", -1))
	writer.must(zkCreate("/a/b/c", "", 0))
	lister.wantEvents("child watches", children("/a/b"))
	recursive.wantEvents("a recursive watch beside them", changed("/a/b"), created("/a/b/c"))
	writer.must(zkCreate("/a/x", "", 0))
	lister.wantEvents("the other child watch", children("/a"))
}

// zkLongPath is one of many long paths.
func zkLongPath(i int) string { return fmt.Sprintf("/many/%06d-%s", i, strings.Repeat("p", 180)) }

// ZOOKEEPER-706, samuel/go-zookeeper#167: thousands of watches were too much for one
// packet when they were set again, and were lost, or tried for ever.
func TestTensOfThousandsOfZooKeepersWatchesComeBack(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	const watches, pipeline, batch = 20_000, 500, 600 // a batch is about 128 kB, as Java's client has it
	c := startProcesses(t, 3, "zookeeper: {words: ['*']}\n")
	writer := zkOpen(t, c.nodes[0].zookeeper())
	writer.must(zkCreate("/many", "", 0))
	l, err := zkLinkTo(c.nodes[1].zookeeper(), 20*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < watches; i += pipeline {
		var qs []wire.Request
		for k := range pipeline {
			qs = append(qs, zkRead(wire.Exists, zkLongPath(i+k), true))
		}
		if _, err := l.call(zkPatient, qs...); err != nil {
			t.Fatal(err)
		}
	}
	l.net.Close()
	writer.must(zkCreate(zkLongPath(0), "", 0)) // while it is away
	if l, err = zkLinkTo(c.nodes[2].zookeeper(), 20*time.Second, l); err != nil {
		t.Fatal(err)
	}
	var qs []wire.Request
	for i := 0; i < watches; i += batch {
		q := wire.Request{Op: wire.Op{Type: wire.SetWatches}, Since: l.last}
		for k := i; k < min(i+batch, watches); k++ {
			q.Watches[wire.ListExists] = append(q.Watches[wire.ListExists], zkLongPath(k))
		}
		qs = append(qs, q)
	}
	if _, err := l.call(zkPatient, qs...); err != nil {
		t.Fatal(err)
	}
	if len(l.events) != 1 || l.events[0] != created(zkLongPath(0)) {
		t.Errorf("told of what was missed: %v", l.events)
	}
	if n := zkFigure(t, c.nodes[2].zookeeper(), "watch_count"); n < watches-1 {
		t.Errorf("%d watches, want %d", n, watches-1)
	}
	l.events = nil
	want := 0
	for i := 1; i < watches; i += 97 {
		writer.must(zkCreate(zkLongPath(i), "", 0))
		want++
	}
	if _, err := l.call(zkPatient, zkSyncRoot); err != nil {
		t.Fatal(err)
	}
	for i, e := range l.events {
		if e != created(zkLongPath(1+97*i)) {
			t.Fatalf("event %d: %v", i, e)
		}
	}
	if len(l.events) != want {
		t.Errorf("%d of %d changes were told", len(l.events), want)
	}
}

// ZOOKEEPER-1382: watches of dead sessions stayed. curator#1293: watches that were
// taken away stayed.
func TestZooKeepersWatchesLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	const workers, sessions, rounds = 8, 100, 500
	c := startProcesses(t, 1, "zookeeper: {words: ['*']}\n")
	host := c.nodes[0].zookeeper()
	watcher := zkOpen(t, host)
	watcher.must(zkRead(wire.GetChildren, "/", true))
	before, had := zkFigure(t, host, "watch_count"), zkFigure(t, host, "global_sessions")
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range sessions {
				if err := watchAndLeave(host, i, i%10 == w); err != nil {
					t.Errorf("session %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	l, err := zkLinkTo(host, 10*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range rounds {
		var qs []wire.Request
		for _, mode := range []int32{wire.AddPersistent, wire.AddPersistentRecursive} {
			qs = append(qs, wire.Request{Op: wire.Op{Type: wire.AddWatch, Path: "/x"}, Mode: mode},
				wire.Request{Op: wire.Op{Type: wire.RemoveWatches, Path: "/x"}, Mode: wire.WatchAny})
		}
		rs, err := l.call(zkPatient, append(qs, qs...)...)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range rs {
			if r.Err != wire.OK {
				t.Fatalf("request %d: %s", i, r.Err)
			}
		}
	}
	if _, err := l.one(wire.Request{Op: wire.Op{Type: wire.CloseSession}}); err != nil {
		t.Fatal(err)
	}
	poll(t, 30*time.Second, "nothing is left of them", func() error {
		watches, have := zkFigure(t, host, "watch_count"), zkFigure(t, host, "global_sessions")
		if watches != before || have > had {
			return fmt.Errorf("%d watches (before %d), %d sessions (%d)", watches, before, have, had)
		}
		return nil
	})
}

// watchAndLeave opens a session, sets watches of every kind, and closes it, or just
// goes.
func watchAndLeave(host string, i int, vanish bool) error {
	l, err := zkLinkTo(host, 2*time.Second, nil)
	if err != nil {
		return err
	}
	defer l.net.Close()
	path := fmt.Sprintf("/watched/%d", i)
	if _, err := l.call(zkPatient, zkRead(wire.Exists, path, true), zkRead(wire.GetChildren, "/", true),
		wire.Request{Op: wire.Op{Type: wire.AddWatch, Path: path}, Mode: wire.AddPersistentRecursive}); err != nil || vanish {
		return err
	}
	_, err = l.one(wire.Request{Op: wire.Op{Type: wire.CloseSession}})
	return err
}

// kazoo#151: watches vanished with the connection. etcd#18089: a delete was lost
// that came right behind what the watcher had seen.
func TestDeleteRightBehindWhatWasSeenIsTold(t *testing.T) {
	t.Parallel()
	c := startProcesses(t, 3, "")
	writer := zkOpen(t, c.nodes[0].zookeeper())
	l, err := zkLinkTo(c.nodes[1].zookeeper(), 10*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		path := fmt.Sprintf("/d%d", i)
		made := writer.must(zkCreate(path, "", 0))
		rs, err := l.call(zkPatient, zkSyncRoot, zkRead(wire.GetData, path, true))
		if err != nil || rs[1].Err != wire.OK || rs[1].Zxid != made.Zxid {
			t.Fatalf("%+v, %v", rs, err)
		}
		seen := l.last
		l.net.Close()
		gone := writer.must(zkDelete(path, 0))
		if l, err = zkLinkTo(c.nodes[(i+2)%3].zookeeper(), 10*time.Second, l); err != nil {
			t.Fatal(err)
		}
		q := wire.Request{Op: wire.Op{Type: wire.SetWatches}, Since: seen}
		q.Watches[wire.ListData] = []string{path}
		if _, err := l.call(zkPatient, q, zkSyncRoot); err != nil {
			t.Fatal(err)
		}
		if len(l.events) != 1 || l.events[0] != deleted(path) {
			t.Errorf("seen %s, deleted at %s: told %v", seen, gone.Zxid, l.events)
		}
		l.events = nil
	}
}
