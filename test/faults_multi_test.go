package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/internal/localcluster"
	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/recipes/lock"
	"github.com/coordd/coord/server"
)

// ZOOKEEPER-1124, ZOOKEEPER-1851: a new kind of write was not forwarded to the
// leader, so it timed out at every other server.
func TestEveryKindOfWriteWorksThroughEveryServer(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 3, nil)
	ctx := testContext(t, time.Minute)
	var first string
	for i, endpoint := range c.Endpoints() {
		shape := everyWrite(ctx, t, dial(t, []string{endpoint}), fmt.Sprintf("/at%d", i))
		if i == 0 {
			first = shape
		}
		if shape != first {
			t.Errorf("through n%d:\n%s, through n1:\n%s", i+1, shape, first)
		}
	}
	sameLocalDigests(t, c)
}

// everyWrite makes one write of each kind below dir, alone and in a transaction,
// and says what came back, without what differs from time to time.
func everyWrite(ctx context.Context, t *testing.T, cl *client.Client, dir string) string {
	t.Helper()
	open := []client.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}
	must[client.Created](t)(cl.Create(ctx, dir, nil))
	txn := []client.Op{
		client.OpCreate(dir+"/p", []byte("x")),
		client.OpCreate(dir+"/e", nil, client.WithEphemeral()),
		client.OpCreate(dir+"/s-", nil, client.WithSequential()),
		client.OpCreate(dir+"/es-", nil, client.WithEphemeral(), client.WithSequential()),
		client.OpCreate(dir+"/c", nil, client.WithContainer()),
		client.OpCreate(dir+"/t", nil, client.WithTTL(time.Hour)),
		client.OpCheck(dir+"/p", 0),
		client.OpSet(dir+"/p", []byte("y"), 0),
		client.OpSetACL(dir+"/p", open, 0),
		client.OpDelete(dir+"/t", client.AnyVersion),
	}
	results := must[[]client.OpResult](t)(cl.Txn(ctx, txn...))
	made := results[0].Stat
	results = append(results, must[[]client.OpResult](t)(cl.Txn(ctx, client.OpCheckNode(dir+"/p", made.Czxid, 0), client.OpDeleteNode(dir+"/e", made.Czxid, cl.Session().ID())))...)
	for _, op := range append(txn[:6:6], txn[7:]...) { // a check needs company
		one, err := cl.WriteSettled(ctx, op)
		if err != nil {
			results = append(results, client.OpResult{Err: errors.Unwrap(err)})
		}
		results = append(results, one...)
	}
	shape := ""
	for _, r := range results {
		path := r.Path
		if len(path) > len(dir) {
			path = path[len(dir):]
		}
		shape += fmt.Sprintf("%s %d %d %d %v %v\n", path, r.Stat.Version, r.Stat.Cversion, r.Stat.Aversion, r.Stat.Kind, r.Err)
	}
	return shape
}

// ZOOKEEPER-3895: a transaction without operations crashed the client.
func TestTransactionOfAnySizeIsDoneOrRefused(t *testing.T) {
	const most = 100
	c := startLocal(t, 1, func(cfg *server.Config) { cfg.Limits.OpsPerMulti = most })
	ctx := testContext(t, time.Minute)
	cl := dial(t, c.Endpoints())
	if r, err := cl.Txn(ctx); err != nil || len(r) != 0 {
		t.Errorf("no operation: %v, %v", r, err)
	}
	if err := rawEmptyMulti(ctx, t, c.Endpoints()[0]); err != nil {
		t.Errorf("no operation, from a client that sends it: %v", err)
	}
	if r, err := cl.Txn(ctx, client.OpCreate("/n", nil)); err != nil || len(r) != 1 || r[0].Path != "/n" {
		t.Errorf("one operation: %v, %v", r, err)
	}
	if r, err := cl.Txn(ctx, bytes2ops(most)...); err != nil || len(r) != most {
		t.Errorf("the most: %d, %v", len(r), err)
	}
	var e *client.Error
	_, err := cl.Txn(ctx, bytes2ops(most+1)...)
	if !errors.As(err, &e) || e.Limit != "limits.ops_per_transaction" || e.Outcome != client.NotDone {
		t.Errorf("one more: %v", err)
	}
	if _, err := cl.Set(ctx, "/n", nil, 0); err != nil {
		t.Errorf("the session afterwards: %v", err)
	}
}

func rawEmptyMulti(ctx context.Context, t *testing.T, endpoint string) error {
	t.Helper()
	stream, w, err := hello(ctx, connection(t, endpoint), openHello(0))
	if err != nil || w.GetError() != nil {
		t.Fatal(err, w.GetError())
	}
	if err := stream.Send(&coordpb.SessionRequest{Requests: []*coordpb.Request{{Seq: 1, Write: &coordpb.Write{Multi: true}}}}); err != nil {
		return err
	}
	r, err := answerTo(stream, 0, 1)
	if err == nil && r.GetError().GetCode() != coordpb.Code_CODE_BAD_ARGUMENTS {
		err = fmt.Errorf("answered with %v", r)
	}
	return err // and the stream goes on
}

// ClickHouse#69627: what an allowed part of a transaction had prepared stayed
// when another part was denied.
func TestDeniedTransactionLeavesNothingPrepared(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 3, nil)
	ctx := testContext(t, time.Minute)
	cl := dial(t, c.Endpoints())
	must[client.Created](t)(cl.Create(ctx, "/closed", nil, client.WithACL(client.ACL{Perms: 1, Scheme: "world", ID: "anyone"})))
	for i := range 3 {
		results, err := cl.Txn(ctx, client.OpCreate("/first", nil), client.OpSet("/first", []byte("x"), 0), client.OpCreate("/closed/n", nil))
		var e *client.Error
		if !errors.Is(err, client.ErrNoAuth) || !errors.As(err, &e) || e.Index != 2 || len(results) != 3 || !errors.Is(results[0].Err, client.ErrRolledBack) {
			t.Fatalf("attempt %d: %v, %+v", i, err, results)
		}
		if _, there, err := cl.Exists(ctx, "/first"); err != nil || there {
			t.Fatalf("attempt %d: there %v, %v", i, there, err)
		}
	}
	made, err := cl.Create(ctx, "/first", nil)
	if err != nil || made.Stat.Version != 0 {
		t.Errorf("creating it alone: %+v, %v", made, err)
	}
	st, _, err := cl.Exists(ctx, "/")
	if err != nil || st.Pzxid != made.Stat.Czxid {
		t.Errorf("the root was changed by %s, not by %s: %v", st.Pzxid, made.Stat.Czxid, err)
	}
	sameLocalDigests(t, c)
}

// ZOOKEEPER-1388, ZOOKEEPER-1344: the parts of a transaction were not checked
// like other paths, nor put below the client's prefix.
func TestBadPathInATransactionIsNamedByItsPlace(t *testing.T) {
	c := startLocal(t, 1, nil)
	ctx := testContext(t, time.Minute)
	top := dial(t, c.Endpoints())
	must[client.Created](t)(top.Create(ctx, "/app", nil))
	cl := dial(t, c.Endpoints(), client.WithChroot("/app"))
	for _, bad := range []string{"no-slash", "/a/", "//a", "/a/./b", "/a/../b", "/\x00", "", "/\ufffe"} {
		_, err := cl.Txn(ctx, client.OpCreate("/a", nil), client.OpCreate("/b", nil), client.OpCreate(bad, nil), client.OpCreate("/c", nil))
		var e *client.Error
		if !errors.Is(err, client.ErrBadPath) || !errors.As(err, &e) || e.Index != 2 || e.Path != bad {
			t.Errorf("%q: %v", bad, err)
		}
		// A client that does not look at paths meets the same at the server.
		if code, place := rawMulti(ctx, t, c.Endpoints()[0], "/app/a", "/app/b", bad); code != coordpb.Code_CODE_BAD_PATH || place != 2 {
			t.Errorf("%q, sent as it is: %s at %d", bad, code, place)
		}
	}
	if n, err := top.CountDescendants(ctx, "/app"); err != nil || n != 0 {
		t.Errorf("%d nodes were made, %v", n, err)
	}
	must[[]client.OpResult](t)(cl.Txn(ctx, client.OpCreate("/a", nil), client.OpCreate("/b", nil)))
	if names, err := top.Children(ctx, "/app"); err != nil || len(names) != 2 {
		t.Errorf("below the prefix: %v, %v", names, err)
	}
}

// rawMulti sends creates in one transaction and returns its error and the place
// of the operation that failed.
func rawMulti(ctx context.Context, t *testing.T, endpoint string, paths ...string) (coordpb.Code, int32) {
	t.Helper()
	var ops []*coordpb.Op
	for _, p := range paths {
		ops = append(ops, &coordpb.Op{Kind: coordpb.Op_KIND_CREATE, Path: p, Data: []byte{}})
	}
	reply, err := coordpb.NewCoordClient(connection(t, endpoint)).Write(ctx, &coordpb.WriteRequest{Write: &coordpb.Write{Ops: ops, Multi: true}})
	if err != nil {
		t.Fatal(err)
	}
	return reply.GetError().GetCode(), reply.GetError().GetOpIndex()
}

// apache/zookeeper#2059: names from the id of the commit clash within one. Here
// names come from a counter of the parent. A token is the id of a transaction,
// so contenders that one transaction made have equal ones: the recipe makes none
// like that, and a strict gate tells the second one that it is late.
func TestSequentialCreatesOfOneTransactionAreToldApart(t *testing.T) {
	c := startLocal(t, 1, nil)
	ctx := testContext(t, time.Minute)
	cl := dial(t, c.Endpoints())
	m := lock.New(dial(t, c.Endpoints()), "/lock")
	if err := acquire(t, m).Release(ctx); err != nil {
		t.Fatal(err)
	}
	mode := []client.CreateOption{client.WithEphemeral(), client.WithSequential()}
	r := must[[]client.OpResult](t)(cl.Txn(ctx, client.OpCreate("/lock/lock-", nil, mode...), client.OpCreate("/lock/lock-", nil, mode...)))
	if r[0].Path != "/lock/lock-0000000001" || r[1].Path != "/lock/lock-0000000002" {
		t.Fatalf("created %s and %s", r[0].Path, r[1].Path)
	}
	granted := make(chan *lock.Handle, 1)
	go func() { granted <- acquire(t, m) }()
	gate := fence.NewGate(fence.Strict())
	for i := range r {
		info, err := m.Inspect(ctx)
		if err != nil || len(info.Holders) != 1 || info.Holders[0].Node != r[i].Path {
			t.Fatalf("holder %d: %+v, %v", i, info, err)
		}
		err = gate.Admit(ctx, "resource", info.Holders[0].Token)
		var stale *fence.StaleError
		if i == 0 && err != nil || i == 1 && !errors.As(err, &stale) {
			t.Errorf("the token of holder %d: %v", i, err)
		}
		if err := cl.Delete(ctx, r[i].Path, client.AnyVersion); err != nil {
			t.Fatal(err)
		}
	}
	h := <-granted
	if err := gate.Admit(ctx, "resource", h.FencingToken()); err != nil {
		t.Errorf("the next holder of the recipe: %v", err)
	}
	if err := h.Release(ctx); err != nil {
		t.Error(err)
	}
}

// TestSeveralLocksInOneTransactionHaveATokenEach is the other side of zookeeper#2059:
// a Multi makes its queue entries in one transaction. They are for different locks,
// whose tokens do not compare; of each lock they rise. The same lock twice is
// refused.
func TestSeveralLocksInOneTransactionHaveATokenEach(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	ctx := testContext(t, time.Minute)
	gate := fence.NewGate(fence.Strict())
	var watcher *client.Client
	for round := range 30 {
		cl := dial(t, []string{c.nodes[round%3].grpc()}) // each server in turn
		watcher = cl
		paths := []string{"/locks/b", "/locks/a"}
		if round%2 == 0 {
			paths[0], paths[1] = paths[1], paths[0]
		}
		if _, err := lock.NewMulti(cl, append(paths, paths[0])).Acquire(ctx); !errors.Is(err, client.ErrBadArguments) {
			t.Fatalf("the same lock twice: %v", err)
		}
		h := must[*lock.MultiHandle](t)(lock.NewMulti(cl, paths).Acquire(ctx))
		for _, p := range paths {
			one := h.Handle(p)
			if err := gate.ForLock(p).Admit(ctx, "resource", one.FencingToken()); err != nil {
				t.Errorf("round %d, %s: %v", round, p, err)
			}
			if st, _, err := cl.Exists(ctx, one.Node()); err != nil || fence.Token(st.Czxid) != one.FencingToken() {
				t.Errorf("token %s, czxid %s, %v", one.FencingToken(), st.Czxid, err)
			}
		}
		if _, err := cl.Txn(ctx, append(h.Guards(), client.OpCheck("/", client.AnyVersion))...); err != nil {
			t.Errorf("the guards of a holder: %v", err)
		}
		if err := h.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := cl.Txn(ctx, h.Guards()...); err == nil {
			t.Error("the guards of a former holder hold")
		}
	}
	for _, p := range []string{"/locks/a", "/locks/b"} {
		queueLength(ctx, t, watcher, p, 0)
	}
}

// etcd PR#21432: a transaction that read at an old position came out differently
// on replicas with more or less history.
func TestTransactionsDoNotDependOnWhatAServerRemembers(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 3, nil)
	ctx := testContext(t, time.Minute)
	s := seed.New(t)
	cl := dial(t, c.Endpoints())
	must[client.Created](t)(cl.Create(ctx, "/f", nil))
	fillHistory(ctx, t, cl, 4000)
	forgetHistory(ctx, t, c, (localLeader(t, c)+1)%3)
	var wg sync.WaitGroup
	for i, e := range c.Endpoints() {
		at := dial(t, []string{e})
		r := rand.New(rand.NewPCG(s, uint64(i)))
		wg.Go(func() {
			for range 300 {
				n, err := at.Get(ctx, "/f", client.Mode(client.ReadSession))
				if err != nil {
					t.Error(err)
					return
				}
				old := n.Stat
				old.Version -= int64(r.IntN(3)) // often what it was, not what it is
				_, err = at.Txn(ctx, client.OpCheck("/f", old.Version), client.OpCheckNode("/f", old.Czxid, 0), client.OpSet("/f", nil, old.Version))
				if err != nil && !errors.Is(err, client.ErrBadVersion) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	sameLocalDigests(t, c)
}

// forgetHistory restarts one server from a snapshot: it knows no change before.
func forgetHistory(ctx context.Context, t *testing.T, c *localcluster.Cluster, i int) {
	t.Helper()
	if _, err := coordpb.NewAdminClient(connection(t, c.Endpoints()[i])).Snapshot(ctx, &coordpb.SnapshotRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.StopServer(i), c.StartServer(i), c.WaitReady(ctx)); err != nil {
		t.Fatal(err)
	}
}
