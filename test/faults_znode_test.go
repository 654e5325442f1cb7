package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/localcluster"
	"github.com/coordd/coord/recipes/lock"
	"github.com/coordd/coord/server"
	"github.com/coordd/coord/znode"
)

// snapshotAndRestart makes every server write a snapshot and start again from it.
func snapshotAndRestart(t testing.TB, c *localcluster.Cluster) {
	t.Helper()
	ctx := testContext(t, time.Minute)
	for _, e := range c.Endpoints() {
		reply, err := coordpb.NewAdminClient(connection(t, e)).Snapshot(ctx, &coordpb.SnapshotRequest{})
		if err != nil || reply.GetError() != nil {
			t.Fatalf("snapshot: %v, %v", err, reply.GetError())
		}
	}
	restart(t, c)
}

// restart stops all servers and starts them again.
func restart(t testing.TB, c *localcluster.Cluster) {
	t.Helper()
	for i := range c.Endpoints() {
		if err := c.StopServer(i); err != nil {
			t.Fatal(err)
		}
	}
	for i := range c.Endpoints() {
		if err := c.StartServer(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.WaitReady(testContext(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
}

// bbolt PR#730: a value without bytes came back as no value.
func TestNullAndEmptyDataSurviveSnapshotAndRestart(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 3, nil)
	ctx := testContext(t, time.Minute)
	cl := dial(t, c.Endpoints())
	must[client.Created](t)(cl.Create(ctx, "/null", nil))
	must[client.Created](t)(cl.Create(ctx, "/empty", []byte{}))
	must[client.Created](t)(cl.Create(ctx, "/was-null", nil))
	must[client.Stat](t)(cl.Set(ctx, "/was-null", []byte{}, 0))
	must[client.Created](t)(cl.Create(ctx, "/was-empty", []byte{}))
	must[client.Stat](t)(cl.Set(ctx, "/was-empty", nil, 0))
	for _, when := range []string{"before", "after"} {
		for _, e := range c.Endpoints() {
			at := dial(t, []string{e})
			for path, null := range map[string]bool{"/null": true, "/was-empty": true, "/empty": false, "/was-null": false} {
				n, err := at.Get(ctx, path)
				if err != nil || (n.Data == nil) != null || len(n.Data) != 0 || n.Stat.DataLength != 0 {
					t.Errorf("%s the restart, %s of %s: null %v, %v", when, path, e, n.Data == nil, err)
				}
			}
		}
		for path, null := range map[string]bool{"/null": true, "/empty": false} {
			checkJSON(ctx, t, c.Target(), path, null)
		}
		if when == "before" {
			snapshotAndRestart(t, c)
		}
	}
	sameLocalDigests(t, c)
}

// checkJSON looks at what coordctl shows.
func checkJSON(ctx context.Context, t *testing.T, endpoint, path string, null bool) {
	t.Helper()
	out, err := exec.CommandContext(ctx, program(t, "coordctl"), "-e", endpoint, "get", path, "-o", "json").CombinedOutput()
	var shown struct {
		Data *string `json:"data"`
	}
	if err == nil {
		err = json.Unmarshal(out, &shown)
	}
	if err != nil || (shown.Data == nil) != null || shown.Data != nil && *shown.Data != "" {
		t.Errorf("get %s -o json: %v\n%s", path, err, out)
	}
}

// ZOOKEEPER-2680: the children of a leaf were null at one place and an empty
// list at another.
func TestChildrenOfALeafAreAlwaysAnEmptyList(t *testing.T) {
	c := startLocal(t, 1, nil)
	ctx := testContext(t, time.Minute)
	cl := dial(t, c.Endpoints())
	must[client.Created](t)(cl.Create(ctx, "/fresh", nil))
	must[client.Created](t)(cl.Create(ctx, "/left", nil))
	must[client.Created](t)(cl.Create(ctx, "/left/child", nil))
	if err := cl.Delete(ctx, "/left/child", client.AnyVersion); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"before", "after"} {
		for _, path := range []string{"/fresh", "/left"} {
			for _, mode := range []client.ReadMode{client.Linearizable, client.ReadSession, client.ReadStale} {
				names, err := cl.Children(ctx, path, client.Mode(mode))
				if err != nil || names == nil || len(names) != 0 {
					t.Errorf("%s the restart, %s read of %s: %#v, %v", when, mode, path, names, err)
				}
			}
		}
		if when == "before" {
			snapshotAndRestart(t, c)
		}
	}
	if names, err := cl.Children(ctx, "/none"); !errors.Is(err, client.ErrNoNode) || names != nil {
		t.Errorf("children of a node that is not there: %#v, %v", names, err)
	}
}

// ZOOKEEPER-1027, ZOOKEEPER-961, ZOOKEEPER-682: clients with a path prefix saw
// whole paths here and there, or missed the events of their root.
func TestClientWithAPrefixSeesNothingOfIt(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 3, nil)
	ctx := testContext(t, time.Minute)
	top := dial(t, c.Endpoints())
	cl := dial(t, c.Endpoints(), client.WithChroot("/apps/mine"))
	if _, err := cl.Create(ctx, "/x", nil); !errors.Is(err, client.ErrNoNode) {
		t.Errorf("a create below a prefix that is not there: %v", err)
	}
	must[client.Created](t)(top.Create(ctx, "/apps", nil))
	must[client.Created](t)(top.Create(ctx, "/apps/mine", []byte("root")))
	must[client.Created](t)(top.Create(ctx, "/apps/mine2", nil)) // begins alike, and is no part
	node := follow(ctx, t, cl, "/", client.NodeAndChildren())
	tree := follow(ctx, t, cl, "/", client.Recursive())

	seq := must[client.Created](t)(cl.Create(ctx, "/s-", nil, client.WithSequential(), client.WithEphemeral()))
	must[client.Stat](t)(cl.Set(ctx, "/", []byte("new"), client.AnyVersion))
	must[client.Created](t)(top.Create(ctx, "/apps/mine2/other", nil))
	results := must[[]client.OpResult](t)(cl.Txn(ctx, client.OpCreate("/m", nil), client.OpCreate("/m/n-", nil, client.WithSequential()), client.OpSet("/", nil, 1)))
	must[client.Zxid](t)(cl.Sync(ctx))
	must[client.Created](t)(cl.Create(ctx, "/end", nil))

	if seq.Path != "/s-0000000000" || results[0].Path != "/m" || results[1].Path != "/m/n-0000000000" || results[2].Path != "/" {
		t.Errorf("created %s, results %+v", seq.Path, results)
	}
	want := "created /s-0000000000, changed /, created /m, created /m/n-0000000000, changed /"
	if got := strings.Join(upTo(ctx, t, tree, "/end"), ", "); got != want {
		t.Errorf("the recursive watch of the root saw\n%s, want\n%s", got, want)
	}
	for i, typ := range []client.EventType{client.EventChildren, client.EventChanged, client.EventChildren, client.EventChanged, client.EventChildren} {
		if ev := <-node; ev.Type != typ || ev.Path != "/" {
			t.Errorf("event %d of the root: %s %s, want %s", i, ev.Type, ev.Path, typ)
		}
	}
	checkPrefixedReads(ctx, t, cl)
	h := acquire(t, lock.New(cl, "/locks/l"))
	if _, there, err := top.Exists(ctx, "/apps/mine"+h.Node()); err != nil || !there {
		t.Errorf("the lock's node: there %v, %v", there, err)
	}
	if err := h.Release(ctx); err != nil {
		t.Error(err)
	}
}

// checkPrefixedReads checks every other way by which a path comes back.
func checkPrefixedReads(ctx context.Context, t *testing.T, cl *client.Client) {
	t.Helper()
	var walked []string
	for n, err := range cl.Walk(ctx, "/") {
		if err != nil {
			t.Fatal(err)
		}
		walked = append(walked, n.Path)
	}
	if want := []string{"/", "/end", "/m", "/m/n-0000000000", "/s-0000000000"}; !slices.Equal(walked, want) {
		t.Errorf("walk: %v, want %v", walked, want)
	}
	if own, err := cl.Ephemerals(ctx, "/"); err != nil || !slices.Equal(own, []string{"/s-0000000000"}) {
		t.Errorf("ephemerals: %v, %v", own, err)
	}
	if n, err := cl.CountDescendants(ctx, "/"); err != nil || n != 4 {
		t.Errorf("descendants: %d, %v", n, err)
	}
	if n, err := cl.Get(ctx, "/"); err != nil || n.Path != "/" {
		t.Errorf("get: %s, %v", n.Path, err)
	}
	var e *client.Error
	if _, err := cl.Set(ctx, "/m", nil, 7); !errors.As(err, &e) || e.Path != "/m" || strings.Contains(err.Error(), "/apps") {
		t.Errorf("error of a set: %v", err)
	}
	if _, err := cl.Txn(ctx, client.OpCheck("/m", 0), client.OpDelete("/none", client.AnyVersion)); !errors.As(err, &e) || e.Path != "/none" || strings.Contains(err.Error(), "/apps") {
		t.Errorf("error of a transaction: %v", err)
	}
}

// ZOOKEEPER-3546, ZOOKEEPER-4915: containers that never had a child stayed for
// ever.
func TestUnusedContainerGoesAndAUsedOneStays(t *testing.T) {
	skipIfShort(t)
	var ahead atomic.Int64
	c := startLocal(t, 1, func(cfg *server.Config) {
		cfg.Cluster.Clock.Wall = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	ctx := testContext(t, time.Minute)
	cl := dial(t, c.Endpoints())
	for _, p := range []string{"/unused", "/used", "/emptied"} {
		must[client.Created](t)(cl.Create(ctx, p, nil, client.WithContainer()))
	}
	must[client.Created](t)(cl.Create(ctx, "/used/child", nil))
	must[client.Created](t)(cl.Create(ctx, "/emptied/child", nil))
	if err := cl.Delete(ctx, "/emptied/child", client.AnyVersion); err != nil {
		t.Fatal(err)
	}
	if _, err := gone(ctx, cl, "/emptied"); err != nil { // within a tick
		t.Fatal(err)
	}
	if _, there, err := cl.Exists(ctx, "/unused"); err != nil || !there {
		t.Fatalf("the unused container went before its time: %v", err)
	}
	// The clock of the state follows the wall clock when a leader begins.
	ahead.Store(int64(znode.ContainerGrace))
	restart(t, c)
	if _, err := gone(ctx, cl, "/unused"); err != nil {
		t.Fatal(err)
	}
	if _, there, err := cl.Exists(ctx, "/used"); err != nil || !there {
		t.Errorf("the container in use: there %v, %v", there, err)
	}
}

// ZOOKEEPER-4915, the other half: a container is not taken away from under a
// create that comes just as its last child goes.
func TestContainerIsNeverReapedFromUnderALock(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 1, nil)
	ctx := testContext(t, time.Minute)
	m := lock.New(dial(t, c.Endpoints()), "/locks/often/free")
	var folder client.Zxid
	for made := 0; made < 4; { // the reaper looks every second
		h, err := m.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		st, there, err := h.Session().Client().Exists(ctx, m.Path())
		if err != nil || !there || st.NumChildren != 1 {
			t.Fatalf("the folder of a lock that is held: there %v, %+v, %v", there, st, err)
		}
		if st.Czxid != folder {
			made, folder = made+1, st.Czxid
		}
		if err := h.Release(ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rand.N(30 * time.Millisecond))
	}
}

// apache/helix#962: a listing above the limit of a message looked like a lost
// connection, and was asked for again for ever.
func TestDirectoryAboveAnyMessageIsListed(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 1, nil)
	ctx := testContext(t, 2*time.Minute)
	cl := dial(t, c.Endpoints())
	const names = 500_000 // of 12 bytes; the limit is 4 MiB
	fill(ctx, t, cl, "/huge", names)
	before := cl.Session().Server()
	got, err := cl.Children(ctx, "/huge")
	if err != nil || len(got) != names || !slices.IsSorted(got) || got[names-1] != fmt.Sprintf("child-%06d", names-1) {
		t.Fatalf("%d names, %v", len(got), err)
	}
	if requests := localStats(t, c.Endpoints()[0]).Requests; requests > 1000 {
		t.Errorf("%d requests in all", requests)
	}
	if cl.Session().State() != client.Connected || cl.Session().Server() != before {
		t.Errorf("the session is %s", cl.Session().State())
	}
}
