package test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/server"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
)

// withZooKeeper gives the servers of startLocal a ZooKeeper port.
func withZooKeeper(cfg *server.Config) { cfg.ZooKeeper.Address = "127.0.0.1:0" }

// kazoo#730, go-zookeeper#65: numbers past 2^31 turned the order round.
func TestSequencesOfZooKeepersClientsPassTheEndsOfNumbers(t *testing.T) {
	t.Parallel()
	c := startLocal(t, 1, withZooKeeper)
	l := zkOpen(t, c.Server(0).Addrs().ZooKeeper.String())
	for i, start := range []uint64{1<<31 - 2, 1e10 - 2} {
		dir := fmt.Sprintf("/queue-%d", i)
		l.must(zkCreate(dir, "", 0))
		// Nobody else uses this server's tree: what View lets do under its read
		// lock is safe here.
		c.Server(0).Node().Machine().View(func(v *fsm.View) {
			if err := v.Tree.SetSequence(dir, start); err != nil {
				t.Fatal(err)
			}
		})
		for n := range uint64(5) {
			want := fmt.Sprintf("%s/n-%010d", dir, start+n)
			if r := l.must(zkCreate(dir+"/n-", "", wire.FlagEphemeralSequential)); r.Path != want {
				t.Errorf("%s, want %s", r.Path, want)
			}
		}
	}
}

// ZOOKEEPER-3546, ZOOKEEPER-4915: containers that never had a child stayed for ever.
func TestUnusedContainerOfAZooKeeperClientGoes(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	c := startLocal(t, 1, func(cfg *server.Config) {
		withZooKeeper(cfg)
		cfg.Cluster.Clock.Wall = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	l := zkOpen(t, c.Server(0).Addrs().ZooKeeper.String())
	l.must(zkTyped(wire.CreateContainer, "/unused", wire.FlagContainer, 0))
	l.must(zkTyped(wire.CreateContainer, "/used", wire.FlagContainer, 0))
	l.must(zkCreate("/used/child", "", 0))
	ahead.Store(int64(znode.ContainerGrace)) // the state's clock follows when a leader begins
	restart(t, c)
	l = l.resume(c.Server(0).Addrs().ZooKeeper.String())
	poll(t, zkPatient, "the unused container goes", func() error {
		if r := l.call(zkRead(wire.Exists, "/unused", false)); r.Err != wire.NoNode {
			return fmt.Errorf("exists: %w", r.Err)
		}
		return nil
	})
	l.must(zkRead(wire.Exists, "/used", false))
}

// bbolt PR#730: empty values were not told apart from none. ZOOKEEPER-2680: the
// children of a leaf were null in one place and an empty list in another.
func TestNullDataAndEmptyListsStayWhatTheyAreOverTheWire(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	c := startLocal(t, 3, withZooKeeper)
	host := func() string { return c.Server(0).Addrs().ZooKeeper.String() }
	l := zkOpen(t, host())
	null, emptied := zkCreate("/null", "", 0), "/emptied"
	null.Data = nil
	l.must(null)
	l.must(zkCreate("/empty", "", 0))
	l.must(zkCreate(emptied, "", 0))
	l.must(zkCreate(emptied+"/x", "", 0))
	l.must(zkDelete(emptied+"/x", -1))
	check := func(when string) {
		t.Helper()
		for path, length := range map[string]int32{"/null": -1, "/empty": 0, emptied: 0} {
			r := l.must(zkRead(wire.GetData, path, false))
			if got := int32(binary.BigEndian.Uint32(r.record)); got != length || r.Stat.DataLength != 0 {
				t.Errorf("%s: %s has data of length %d, want %d (%+v)", when, path, got, length, r.Stat)
			}
			for _, typ := range []wire.Type{wire.GetChildren, wire.GetChildren2} {
				if r := l.must(zkRead(typ, path, false)); binary.BigEndian.Uint32(r.record) != 0 {
					t.Errorf("%s: %s of %s: %x", when, typ, path, r.record)
				}
			}
			if r := l.must(wire.Request{Op: wire.Op{Type: wire.GetEphemerals, Path: path}}); binary.BigEndian.Uint32(r.record) != 0 {
				t.Errorf("%s: ephemerals: %x", when, r.record)
			}
		}
	}
	check("at first")
	snapshotAndRestart(t, c)
	l = l.resume(host())
	check("after a snapshot and a restart")
}

// ZOOKEEPER-3895: an empty transaction crashed; ZOOKEEPER-1388, -1344: paths in a
// transaction were not checked; ClickHouse#69627: a denied part left something
// prepared behind; GHSA-rfx7-8w68-q57q: parts of it skipped the check.
func TestTransactionsOfZooKeepersClientsAreDoneOrRefused(t *testing.T) {
	t.Parallel()
	const most = 64
	c := startProcesses(t, 3, fmt.Sprintf("limits: {ops_per_transaction: %d}\n", most))
	for _, n := range c.nodes {
		l := zkOpen(t, n.zookeeper())
		dir := l.dir()
		secret := zkCreate(dir+"/secret", "", 0)
		secret.ACL = digestOnly("somebody:else")
		l.must(secret)
		for _, ops := range []int{0, 1, most} {
			if r := l.must(zkMulti(slices.Repeat([]wire.Op{zkSet(dir, "", -1).Op}, ops)...)); len(r.Results) != ops {
				t.Errorf("%d operations: %+v", ops, r.Results)
			}
		}
		l.wants(wire.BadArguments, zkMulti(slices.Repeat([]wire.Op{zkSet(dir, "", -1).Op}, most+1)...))
		fine, path := zkCreate(dir+"/x", "", 0).Op, dir+"/x"
		denied := map[string]wire.Op{
			"set": zkSet(dir+"/secret", "", -1).Op, "create": zkCreate(dir+"/secret/x", "", 0).Op,
			"sequence": zkCreate(dir+"/secret/x-", "", wire.FlagSequential).Op,
			"acl":      {Type: wire.SetACL, Path: dir + "/secret", ACL: openACL, Version: -1},
		}
		for what, op := range denied {
			code := wire.NoAuth
			if op.Type == wire.SetACL {
				code = wire.MarshallingError // it may not stand in a multi
			}
			for at := range 3 {
				ops := []wire.Op{fine, zkSet(path, "", -1).Op}
				r := l.call(zkMulti(slices.Insert(ops, at, op)...))
				if r.Err == code {
					continue
				}
				if r.Err != wire.OK || r.Results[at].Err != code && at == 0 || at > 0 && (r.Results[at].Err != code || r.Results[0].Err != wire.OK) {
					t.Errorf("%s at %d: %s %+v", what, at, r.Err, r.Results)
				}
			}
			l.wants(wire.NoNode, zkRead(wire.Exists, path, false))
		}
		r := l.must(zkMulti(fine, zkSet(path, "", -1).Op, zkCreate(dir+"/..", "", 0).Op, zkDelete(path, -1).Op))
		codes := []wire.Code{wire.OK, wire.OK, wire.BadArguments, wire.RuntimeInconsistency}
		for i, res := range r.Results {
			if res.Err != codes[i] {
				t.Errorf("a bad path as the third: %+v", r.Results)
				break
			}
		}
		l.must(zkCreate(path, "", 0)) // nothing was prepared
		l.must(zkDelete(path, 0))
	}
	c.sameDigests()
}

// ClickHouse#120265: "everyone" beside others was dropped. ClickHouse#118965: an
// empty list refused everyone.
func TestACLsOfZooKeepersClientsAreKeptAsGiven(t *testing.T) {
	t.Parallel()
	c := startProcesses(t, 3, "")
	mine := znode.ACL{Perms: 31, Scheme: "digest", ID: zkDigest("me:pw")}
	other := znode.ACL{Perms: 31, Scheme: "digest", ID: zkDigest("you:pw")}
	world := znode.ACL{Perms: 1, Scheme: "world", ID: "anyone"}
	owner, anyone := zkOpen(t, c.nodes[0].zookeeper()), zkOpen(t, c.nodes[1].zookeeper())
	owner.auth("digest", "me:pw")
	for i, list := range [][]znode.ACL{{world}, {world, mine}, {mine, world}, {mine, other, world}, {other, world, mine}, {world, world}} {
		path := fmt.Sprintf("/acl%d", i)
		q := zkCreate(path, "data", 0)
		q.ACL = list
		owner.must(q)
		want := slices.Compact(slices.Clone(list))
		if got := owner.must(zkRead(wire.GetACL, path, false)).ACL; !slices.Equal(got, want) {
			t.Errorf("%v was kept as %v", list, got)
		}
		anyone.must(zkSyncRoot)
		anyone.must(zkRead(wire.GetData, path, false))
		anyone.wants(wire.NoAuth, zkSet(path, "", -1))
		code := wire.NoAuth
		if slices.Contains(list, mine) {
			code = wire.OK
		}
		owner.wants(code, zkSet(path, "", -1))
	}
	for _, list := range [][]znode.ACL{{}, {{Perms: 31, Scheme: "auth"}}} {
		q := zkCreate("/unusable", "", 0)
		q.ACL = list
		anyone.wants(wire.InvalidACL, q)
	}
	anyone.wants(wire.NoNode, zkRead(wire.Exists, "/unusable", false))
}

// ZOOKEEPER-1124, -1851: a kind of write was not forwarded by servers that do not
// lead.
func TestEveryKindOfWriteOfZooKeepersClientsWorksAtEveryServer(t *testing.T) {
	t.Parallel()
	c := startProcesses(t, 3, "")
	var trees []string
	for _, n := range c.nodes {
		l := zkOpen(t, n.zookeeper())
		dir := l.dir()
		for _, q := range []wire.Request{
			zkCreate(dir+"/a", "1", 0), zkCreate2(dir+"/b", "", wire.FlagEphemeral), zkTyped(wire.CreateContainer, dir+"/c", 4, 0),
			zkTyped(wire.CreateTTL, dir+"/d", 5, time.Hour), zkCreate(dir+"/s-", "", wire.FlagSequential), zkSet(dir+"/a", "2", 0),
			{Op: wire.Op{Type: wire.SetACL, Path: dir + "/a", ACL: openACL, Version: 0}},
			zkDelete(dir+"/d", 0),
			zkMulti(zkCreate(dir+"/m", "", 0).Op, zkSet(dir+"/a", "3", 1).Op, wire.Op{Type: wire.Check, Path: dir + "/a", Version: 2}),
		} {
			l.must(q)
		}
		names := l.must(zkRead(wire.GetChildren, dir, false)).Names
		slices.Sort(names)
		trees = append(trees, fmt.Sprint(names, string(l.must(zkRead(wire.GetData, dir+"/a", false)).Data)))
		l.must(wire.Request{Op: wire.Op{Type: wire.CloseSession}})
	}
	for _, tree := range trees {
		if tree != trees[0] || !strings.Contains(tree, "s-000000000") {
			t.Errorf("servers differ: %v", trees)
		}
	}
	c.sameDigests()
}
