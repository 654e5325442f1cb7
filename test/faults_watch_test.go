package test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
)

// follow runs a watch and returns its events, from when it is registered.
func follow(ctx context.Context, t *testing.T, c *client.Client, path string, opts ...client.WatchOption) <-chan client.Event {
	t.Helper()
	events := make(chan client.Event, 10_000)
	ready := make(chan struct{})
	go func() {
		defer close(events)
		started := false
		for ev, err := range c.Watch(ctx, path, append(opts, client.Initial(client.Linearizable))...) {
			switch {
			case err != nil:
				if ctx.Err() == nil {
					t.Errorf("watch of %s: %v", path, err)
				}
				return
			case !started:
				started = true
				close(ready)
			default:
				events <- ev
			}
		}
	}()
	select {
	case <-ready:
	case <-ctx.Done():
		t.Fatalf("the watch of %s was not registered", path)
	}
	return events
}

// upTo collects the events before the one that creates the path last.
func upTo(ctx context.Context, t *testing.T, events <-chan client.Event, last string) (got []string) {
	t.Helper()
	for {
		select {
		case ev := <-events:
			if ev.Path == last {
				return got
			}
			got = append(got, ev.Type.String()+" "+ev.Path)
		case <-ctx.Done():
			t.Fatalf("after %v: %v", got, context.Cause(ctx))
		}
	}
}

// ClickHouse#28190: a watch of the children fired when a child's data changed.
// ZOOKEEPER-4475: a recursive watch got the child-list event of a descendant that
// somebody else watched.
func TestWatchesTellWhatTheyAreForAndNoMore(t *testing.T) {
	c := startLocal(t, 1, nil)
	ctx := testContext(t, time.Minute)
	writer, watcher, other := dial(t, c.Endpoints()), dial(t, c.Endpoints()), dial(t, c.Endpoints())
	for _, p := range []string{"/a", "/a/b", "/end"} {
		must[client.Created](t)(writer.Create(ctx, p, nil))
	}
	children := follow(ctx, t, watcher, "/a", client.Children())
	recursive := follow(ctx, t, watcher, "/", client.Recursive())
	others := follow(ctx, t, other, "/a/b", client.Children())

	must[client.Stat](t)(writer.Set(ctx, "/a/b", []byte("x"), client.AnyVersion))
	must[client.Created](t)(writer.Create(ctx, "/a/b/c", nil))
	must[client.Created](t)(writer.Create(ctx, "/a/x", nil))
	if err := writer.Delete(ctx, "/a/x", client.AnyVersion); err != nil {
		t.Fatal(err)
	}
	must[client.Created](t)(writer.Create(ctx, "/end/r", nil))
	want := "[changed /a/b created /a/b/c created /a/x deleted /a/x]"
	if got := upTo(ctx, t, recursive, "/end/r"); fmt.Sprint(got) != want {
		t.Errorf("the recursive watch saw %v, want %s", got, want)
	}
	for i := range 2 {
		if ev := <-children; ev.Type != client.EventChildren || ev.Path != "/a" {
			t.Errorf("event %d of the children of /a: %+v", i, ev)
		}
	}
	if ev := <-others; ev.Type != client.EventChildren || ev.Path != "/a/b" {
		t.Errorf("event of the children of /a/b: %+v", ev)
	}
	if _, err := watcher.Sync(ctx); err != nil { // what was sent before it has come
		t.Fatal(err)
	}
	if len(children)+len(others) != 0 {
		t.Errorf("%d and %d events too many", len(children), len(others))
	}
}

// ZOOKEEPER-706, go-zookeeper#167: to register thousands of watches again took
// one message above the limit, so it failed for ever or watches were lost.
func TestTensOfThousandsOfWatchesComeBackAfterALostConnection(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 2, nil)
	ctx := testContext(t, 3*time.Minute)
	px, addresses := proxies(t, c.Endpoints())
	const watches = 50_000
	pad := strings.Repeat("long-", 40)
	path := func(i int) string { return fmt.Sprintf("/w/%s%05d", pad, i) }
	writer, cl := dial(t, c.Endpoints()), dial(t, addresses)
	must[client.Created](t)(writer.Create(ctx, "/w", nil))
	got := make(chan string, watches)
	watching, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for i := range watches {
		wg.Go(func() {
			for ev, err := range cl.Watch(watching, path(i)) {
				if err != nil {
					return
				}
				got <- ev.Type.String() + " " + ev.Path
			}
		})
	}
	poll(t, time.Minute, "the watches", func() error {
		n := int64(0)
		for _, e := range c.Endpoints() {
			n += localStats(t, e).Watches
		}
		if n != watches {
			return fmt.Errorf("%d are registered", n)
		}
		return nil
	})
	for _, p := range px {
		p.cut()
	}
	for from := 0; from < watches; from += 4000 { // while they come back
		var ops []client.Op
		for i := from; i < min(watches, from+4000); i++ {
			ops = append(ops, client.OpCreate(path(i), nil))
		}
		must[[]client.OpResult](t)(writer.Txn(ctx, ops...))
	}
	seen := make(map[string]bool, watches)
	for len(seen) < watches {
		select {
		case ev := <-got:
			if seen[ev] {
				t.Fatalf("twice: %s", ev)
			}
			seen[ev] = true
		case <-ctx.Done():
			t.Fatalf("%d of %d changes were reported", len(seen), watches)
		}
	}
	for i := range watches {
		if !seen["created "+path(i)] {
			t.Fatalf("not reported: %s", path(i))
		}
	}
}

// apache/zookeeper#1950, #1106: what happened while a persistent watch had no
// connection was never told.
func TestChangesOfATimeWithoutConnectionAreAllTold(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 3, nil)
	ctx := testContext(t, time.Minute)
	px, addresses := proxies(t, c.Endpoints())
	writer, cl := dial(t, c.Endpoints()), dial(t, addresses)
	must[client.Created](t)(writer.Create(ctx, "/a", nil))
	events := follow(ctx, t, cl, "/a", client.Recursive())
	before := cl.Session().Server()
	for i, p := range px {
		p.refuse.Store(true)
		p.cut()
		if fmt.Sprintf("n%d", i+1) != before {
			defer p.refuse.Store(false)
		}
	}
	const changes = 500
	for i := range changes {
		must[client.Created](t)(writer.Create(ctx, fmt.Sprintf("/a/%03d", i), nil))
	}
	for i, p := range px { // all but the one where it was
		p.refuse.Store(fmt.Sprintf("n%d", i+1) == before)
	}
	for i := range changes {
		select {
		case ev := <-events:
			if ev.Type != client.EventCreated || ev.Path != fmt.Sprintf("/a/%03d", i) {
				t.Fatalf("event %d is %s %s", i, ev.Type, ev.Path)
			}
		case <-ctx.Done():
			t.Fatalf("%d of %d changes were told", i, changes)
		}
	}
	if after := cl.Session().Server(); after == before || after == "" {
		t.Errorf("at %q, before at %q", after, before)
	}
}

// etcd#18089: a delete was not told to a watch that came back just when the
// history was cut at it.
func TestDeleteAtTheEndOfTheHistoryIsToldOrTheHistoryIsGone(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 1, nil)
	ctx := testContext(t, 2*time.Minute)
	cl := dial(t, c.Endpoints())
	must[client.Created](t)(cl.Create(ctx, "/f", nil))
	made := must[client.Created](t)(cl.Create(ctx, "/x", nil))
	if err := cl.Delete(ctx, "/x", client.AnyVersion); err != nil {
		t.Fatal(err)
	}
	const kept = 100_000 // changes that a server remembers
	fillHistory(ctx, t, cl, kept-10)
	var seen []client.EventType
	for range 20 {
		written := make(chan error, 1)
		go func() { _, err := cl.Set(ctx, "/f", nil, client.AnyVersion); written <- err }()
		first, cancel := context.WithTimeout(ctx, 20*time.Second)
		for ev, err := range cl.Watch(first, "/x", client.Since(made.Stat.Czxid)) {
			if err != nil {
				t.Fatalf("neither the delete nor an end of the history after %v: %v", seen, err)
			}
			seen = append(seen, ev.Type)
			break
		}
		cancel()
		if err := <-written; err != nil {
			t.Fatal(err)
		}
	}
	told := 0
	for told < len(seen) && seen[told] == client.EventDeleted {
		told++
	}
	for _, typ := range seen[told:] {
		if typ != client.EventResync {
			t.Fatalf("the first events are %v", seen)
		}
	}
	if told == 0 || told == len(seen) {
		t.Errorf("the history was not cut while the watch came back: %v", seen)
	}
}

// fillHistory makes so many changes of /f.
func fillHistory(ctx context.Context, t *testing.T, c *client.Client, changes int) {
	t.Helper()
	for changes > 0 {
		var ops []client.Op
		for range min(changes, 4000) {
			ops = append(ops, client.OpSet("/f", nil, client.AnyVersion))
		}
		must[[]client.OpResult](t)(c.Txn(ctx, ops...))
		changes -= len(ops)
	}
}

// kazoo#151: a watch for one event was forgotten when the connection changed
// within the session.
func TestWatchForOneEventSurvivesAReconnect(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 2, nil)
	ctx := testContext(t, time.Minute)
	px, addresses := proxies(t, c.Endpoints())
	writer, cl := dial(t, c.Endpoints()), dial(t, addresses)
	must[client.Created](t)(writer.Create(ctx, "/n", nil))
	for i := range 5 {
		ready, got := make(chan struct{}), make(chan client.Event, 1)
		go func() {
			for ev, err := range cl.Watch(ctx, "/n", client.Initial(client.Linearizable)) {
				if err != nil {
					t.Errorf("round %d: %v", i, err)
				}
				if ev.Type != client.EventPresent {
					got <- ev
					return
				}
				close(ready)
			}
		}()
		select {
		case <-ready:
		case ev := <-got:
			t.Fatalf("round %d: %+v came before the state", i, ev)
		case <-ctx.Done():
			t.Fatalf("round %d: the state was not told", i)
		}
		for _, p := range px {
			p.cut()
		}
		must[client.Stat](t)(writer.Set(ctx, "/n", nil, int64(i)))
		select {
		case ev := <-got:
			if ev.Type != client.EventChanged || ev.Stat.Version != int64(i+1) {
				t.Errorf("round %d: %+v", i, ev)
			}
		case <-ctx.Done():
			t.Fatalf("round %d: nothing was told", i)
		}
	}
}

// ZOOKEEPER-1382: a server kept the watches of sessions that were long gone.
func TestSessionsThatWatchLeaveNothingBehind(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 1, shortSessions)
	ctx := testContext(t, 2*time.Minute)
	const sessions, workers = 10_000, 64
	var conns []*grpc.ClientConn
	for range 4 {
		conns = append(conns, connection(t, c.Endpoints()[0]))
	}
	if err := watchAndEnd(ctx, conns[0], 0); err != nil { // what is there once is no growth
		t.Fatal(err)
	}
	before := localStats(t, c.Endpoints()[0])
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < sessions; i += workers {
				if err := watchAndEnd(ctx, conns[i%len(conns)], i); err != nil {
					t.Errorf("session %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	poll(t, 30*time.Second, "the end of all of them", func() error {
		now := localStats(t, c.Endpoints()[0])
		if now.Watches != before.Watches || now.Sessions > before.Sessions || now.Goroutines > before.Goroutines+50 {
			return fmt.Errorf("watches %d (before %d), sessions %d (%d), goroutines %d (%d)",
				now.Watches, before.Watches, now.Sessions, before.Sessions, now.Goroutines, before.Goroutines)
		}
		return nil
	})
}

// watchAndEnd opens a session, sets three watches and ends the session; every
// hundredth one just vanishes.
func watchAndEnd(ctx context.Context, conn *grpc.ClientConn, i int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	vanishes, timeout := i%100 == 99, 10*time.Second
	if vanishes {
		timeout = time.Second
	}
	stream, w, err := hello(ctx, conn, openHello(timeout))
	if err != nil || w.GetError() != nil {
		return errors.Join(err, fmt.Errorf("welcome: %v", w.GetError()))
	}
	watches := []*coordpb.Request{
		{Id: 1, Watch: &coordpb.Watch{Path: "/", Kind: coordpb.Watch_KIND_RECURSIVE}},
		{Id: 2, Watch: &coordpb.Watch{Path: fmt.Sprintf("/none-%d", i), Kind: coordpb.Watch_KIND_NODE}},
		{Id: 3, Read: &coordpb.Read{Kind: coordpb.Read_KIND_CHILDREN, Path: "/", Mode: coordpb.ReadMode_READ_MODE_SESSION, WatchId: 3}},
	}
	if err := stream.Send(&coordpb.SessionRequest{Requests: watches}); err != nil {
		return err
	}
	if vanishes {
		_, err := answerTo(stream, 3, 0)
		return err
	}
	if err := stream.Send(&coordpb.SessionRequest{Requests: []*coordpb.Request{{Seq: 1, Close: true}}}); err != nil {
		return err
	}
	r, err := answerTo(stream, 0, 1)
	if err == nil && r.GetError() != nil {
		err = fmt.Errorf("close: %v", r.GetError())
	}
	return err
}

// curator#1293: closing a persistent watch did not free it.
func TestWatchHandlesThatCloseLeaveNothingBehind(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 1, nil)
	ctx := testContext(t, time.Minute)
	cl := dial(t, c.Endpoints())
	const handles, workers = 10_000, 16
	before, goroutines := localStats(t, c.Endpoints()[0]), runtime.NumGoroutine()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < handles; i += workers {
				for _, err := range cl.Watch(ctx, fmt.Sprintf("/p%d", i%7), client.Recursive(), client.Initial(client.ReadSession)) {
					if err != nil {
						t.Error(err)
					}
					break
				}
			}
		})
	}
	wg.Wait()
	poll(t, 20*time.Second, "all watches to go", func() error {
		now := localStats(t, c.Endpoints()[0])
		if n := runtime.NumGoroutine(); now.Watches != before.Watches || n > goroutines+20 {
			return fmt.Errorf("watches %d (before %d), goroutines %d (%d)", now.Watches, before.Watches, n, goroutines)
		}
		return nil
	})
	// The session is none the worse for it.
	events := follow(ctx, t, cl, "/", client.Recursive())
	must[client.Created](t)(cl.Create(ctx, "/p0", nil))
	if ev := <-events; ev.Path != "/p0" {
		t.Errorf("event %+v", ev)
	}
	if n := localStats(t, c.Endpoints()[0]).EventsSent - before.EventsSent; n > handles+2 {
		t.Errorf("%d events were sent, most to watches that are closed", n)
	}
}
