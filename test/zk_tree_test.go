package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
)

func digestOnly(userPassword string) []znode.ACL {
	return []znode.ACL{{Perms: 31, Scheme: "digest", ID: zkDigest(userPassword)}}
}

// zkTyped is a create of another type.
func zkTyped(t wire.Type, path string, flags int32, ttl time.Duration) wire.Request {
	q := zkCreate(path, "", flags)
	q.Type, q.TTL = t, ttl
	return q
}

func zkCreates(t *testing.T, host, _ string) {
	c := zkOpen(t, host)
	dir := c.dir()
	if r := c.must(zkCreate(dir+"/a", "data", 0)); r.Path != dir+"/a" || len(r.record) != 4+len(r.Path) {
		t.Errorf("create answers %q in %d bytes", r.Path, len(r.record))
	}
	for i, typ := range []wire.Type{wire.Create2, wire.CreateContainer, wire.CreateTTL} {
		flags := map[wire.Type]int32{wire.CreateContainer: wire.FlagContainer, wire.CreateTTL: wire.FlagPersistentTTL}[typ]
		r := c.must(zkTyped(typ, fmt.Sprint(dir, "/b", i), flags, time.Hour))
		if r.Stat.Czxid != r.Zxid || r.Stat.EphemeralOwner != 0 || len(r.record) != 4+len(r.Path)+wire.StatBytes {
			t.Errorf("%s answers %+v", typ, r.Stat)
		}
	}
	// The number counts the creates of the parent, whatever they made; deletes and
	// failed creates do not change it.
	c.must(zkDelete(dir+"/a", -1))
	c.wants(wire.NodeExists, zkCreate(dir+"/b0", "", 0))
	for flags, want := range map[int32]string{wire.FlagSequential: "/s-0000000004"} {
		if r := c.must(zkCreate(dir+"/s-", "", flags)); r.Path != dir+want {
			t.Errorf("sequential: %s", r.Path)
		}
	}
	if r := c.must(zkCreate2(dir+"/", "", wire.FlagEphemeralSequential)); r.Path != dir+"/0000000005" || r.Stat.EphemeralOwner != c.session {
		t.Errorf("a number alone: %s, %+v", r.Path, r.Stat)
	}
	if r := c.must(zkTyped(wire.CreateTTL, dir+"/t-", wire.FlagPersistentSequentialTTL, time.Hour)); r.Path != dir+"/t-0000000006" {
		t.Errorf("sequential with TTL: %s", r.Path)
	}
	c.must(zkCreate(dir+"/taken-0000000008", "", 0))
	c.wants(wire.NodeExists, zkCreate(dir+"/taken-", "", wire.FlagSequential))
	for _, q := range []struct {
		want wire.Code
		q    wire.Request
	}{
		{wire.BadArguments, zkCreate(dir+"/x", "", 7)},
		{wire.BadArguments, zkCreate(dir+"/x", "", -1)},
		{wire.BadArguments, zkCreate(dir+"/x", "", wire.FlagPersistentTTL)},
		{wire.BadArguments, zkTyped(wire.CreateTTL, dir+"/x", 0, time.Hour)},
		{wire.BadArguments, zkTyped(wire.CreateTTL, dir+"/x", wire.FlagPersistentTTL, 0)},
		{wire.BadArguments, zkTyped(wire.CreateTTL, dir+"/x", wire.FlagPersistentTTL, znode.MaxTTL+time.Millisecond)},
		{wire.NoNode, zkCreate(dir+"/none/x", "", 0)},
		{wire.NodeExists, zkCreate("/", "", 0)},
		{wire.BadArguments, zkCreate(dir+"/x\x00y", "", 0)},
		{wire.BadArguments, zkCreate("", "", 0)},
		{wire.BadArguments, zkCreate("x", "", 0)},
		{wire.NoNode, zkCreate("a/b", "", 0)},
		{wire.NoNode, zkCreate(dir+"//y", "", 0)},
		{wire.BadArguments, zkCreate(dir+"/..", "", 0)},
	} {
		c.wants(q.want, q.q)
	}
	c.must(zkCreate(dir+"/e", "", wire.FlagEphemeral))
	c.wants(wire.NoChildrenForEphem, zkCreate(dir+"/e/x", "", 0))
	// Flags 4 in a plain create make a plain node.
	c.must(zkCreate(dir+"/plain", "", wire.FlagContainer))
	// Null and empty data are two things.
	null := zkCreate(dir+"/null", "", 0)
	null.Data = nil
	c.must(null)
	c.must(zkCreate(dir+"/empty", "", 0))
	if n, e := c.must(zkRead(wire.GetData, dir+"/null", false)), c.must(zkRead(wire.GetData, dir+"/empty", false)); n.Data != nil || e.Data == nil {
		t.Errorf("null is %#v, empty is %#v", n.Data, e.Data)
	}
}

func zkStats(t *testing.T, host, _ string) {
	c := zkOpen(t, host)
	dir := c.dir()
	made := c.must(zkCreate2(dir+"/a", "12345", 0))
	want := znode.Stat{Czxid: made.Zxid, Mzxid: made.Zxid, Pzxid: made.Zxid, Ctime: made.Stat.Ctime, Mtime: made.Stat.Ctime, DataLength: 5}
	if made.Stat != want {
		t.Errorf("after create: %+v", made.Stat)
	}
	if now := time.Now().UnixMilli(); made.Stat.Ctime < now-60_000 || made.Stat.Ctime > now+60_000 {
		t.Errorf("created at %d, it is %d", made.Stat.Ctime, now)
	}
	set := c.must(zkSet(dir+"/a", "1", 0))
	want.Mzxid, want.Mtime, want.Version, want.DataLength = set.Zxid, set.Stat.Mtime, 1, 1
	if set.Stat != want || set.Stat.Mtime < want.Ctime {
		t.Errorf("after set: %+v", set.Stat)
	}
	child := c.must(zkCreate(dir+"/a/x", "", 0))
	acl := c.must(wire.Request{Op: wire.Op{Type: wire.SetACL, Path: dir + "/a", ACL: openACL, Version: 0}})
	c.must(zkSet(dir+"/a/x", "data", -1))
	want.Pzxid, want.Cversion, want.NumChildren, want.Aversion = child.Zxid, 1, 1, 1
	if acl.Stat != want {
		t.Errorf("after set ACL: %+v", acl.Stat)
	}
	gone := c.must(zkDelete(dir+"/a/x", -1))
	want.Pzxid, want.Cversion, want.NumChildren = gone.Zxid, 2, 0
	if got := c.must(zkRead(wire.Exists, dir+"/a", false)).Stat; got != want {
		t.Errorf("in the end: %+v\nwant %+v", got, want)
	}
}

func zkVersions(t *testing.T, host, _ string) {
	c := zkOpen(t, host)
	dir := c.dir()
	c.must(zkSet(dir, "1", 0))
	c.must(zkSet(dir, "1", 1)) // the same data is a new version
	for _, v := range []int32{0, 1, 3, -2} {
		c.wants(wire.BadVersion, zkSet(dir, "x", v))
		c.wants(wire.BadVersion, zkDelete(dir, v))
	}
	c.wants(wire.BadVersion, wire.Request{Op: wire.Op{Type: wire.SetACL, Path: dir, ACL: openACL, Version: 2}})
	c.must(wire.Request{Op: wire.Op{Type: wire.SetACL, Path: dir, ACL: openACL, Version: 0}})
	c.must(zkSet(dir, "1", -1))
	c.wants(wire.NoNode, zkSet(dir+"/none", "", -1))
	c.wants(wire.NoNode, wire.Request{Op: wire.Op{Type: wire.SetACL, Path: dir + "/none", ACL: openACL, Version: -1}})
	c.wants(wire.BadArguments, zkSet("", "", -1))
	c.must(zkDelete(dir, 3))
}

func zkDeletes(t *testing.T, host, _ string) {
	c := zkOpen(t, host)
	dir := c.dir()
	c.must(zkCreate(dir+"/a", "", 0))
	c.must(zkCreate(dir+"/a/b", "", 0))
	c.wants(wire.NotEmpty, zkDelete(dir+"/a", -1))
	c.wants(wire.BadVersion, zkDelete(dir+"/a", 5)) // the version is looked at first
	c.wants(wire.NoNode, zkDelete(dir+"/none/x", -1))
	c.wants(wire.NoNode, zkDelete(dir+"/none", -1))
	c.wants(wire.NoNode, zkDelete(dir+"/", -1))
	for _, p := range []string{"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota", "", "x"} {
		c.wants(wire.BadArguments, zkDelete(p, -1))
	}
	// It is the parent's ACL that counts, and no permission hides that a node is
	// not there.
	q := zkCreate(dir+"/p", "", 0)
	q.ACL = []znode.ACL{{Perms: 4 | 1, Scheme: "world", ID: "anyone"}}
	c.must(q)
	c.must(zkCreate(dir+"/p/x", "", 0))
	c.wants(wire.NoAuth, zkDelete(dir+"/p/x", -1))
	c.wants(wire.NoAuth, zkDelete(dir+"/p/none", -1))
	c.must(zkDelete(dir+"/a/b", 0))
	c.must(zkDelete(dir+"/a", 0))
}

func zkPaths(t *testing.T, host, _ string) {
	c := zkOpen(t, host)
	dir := c.dir()
	for _, name := range []string{"...", ".a", "a..", "ü", "日本", "a b", "%", "\\", "a\u00a0b", "\ufdcf"} {
		c.must(zkCreate(dir+"/"+name, "", 0))
		c.must(zkRead(wire.Exists, dir+"/"+name, false))
	}
	for _, name := range []string{".", "..", "a\x01", "a\x1f", "a\u007f", "a\u009f", "a\uf8ff", "a\ue000", "a\ufff0", "a\uffff", "\U0001f600", "a\xff", "a\xc3", ""} {
		c.wants(wire.BadArguments, zkCreate(dir+"/"+name, "", 0))
		c.wants(wire.BadArguments, zkSet(dir+"/"+name, "", -1))
		c.wants(wire.NoNode, zkRead(wire.GetData, dir+"/"+name, false)) // reads do not check
		c.wants(wire.NoNode, zkRead(wire.GetChildren, dir+"/"+name, false))
		c.wants(wire.NoNode, zkRead(wire.Exists, dir+"/"+name, false))
	}
	c.wants(wire.BadArguments, zkRead(wire.Exists, dir+"/\x00", false))
	c.wants(wire.NoNode, zkRead(wire.GetData, dir+"/\x00", false))
	for _, p := range []string{"", "x", "/x/"} {
		c.wants(wire.NoNode, zkRead(wire.Exists, p, false))
		if r := c.must(wire.Request{Op: wire.Op{Type: wire.Sync, Path: p}}); r.Path != p {
			t.Errorf("sync of %q: %q", p, r.Path)
		}
	}
}

func zkACLs(t *testing.T, host, _ string) {
	c := zkOpen(t, host)
	dir := c.dir()
	setACL := func(list ...znode.ACL) wire.Request {
		return wire.Request{Op: wire.Op{Type: wire.SetACL, Path: dir, ACL: list, Version: -1}}
	}
	for name, list := range map[string][]znode.ACL{
		"empty": {}, "unknown scheme": {{Perms: 31, Scheme: "no", ID: "x"}}, "no scheme": {{Perms: 31, ID: "x"}}, "world somebody": {{Perms: 31, Scheme: "world", ID: "me"}},
		"digest without a colon": {{Perms: 31, Scheme: "digest", ID: "me"}}, "two colons": {{Perms: 31, Scheme: "digest", ID: "a:b:c"}},
		"super": {{Perms: 31, Scheme: "super", ID: "x"}}, "auth with nothing behind it": {{Perms: 31, Scheme: "auth"}},
		"ip that is none": {{Perms: 31, Scheme: "ip", ID: "1.2.3"}}, "too many bits": {{Perms: 31, Scheme: "ip", ID: "1.2.3.4/33"}},
		"one of two": {{Perms: 31, Scheme: "world", ID: "anyone"}, {Perms: 31, Scheme: "no", ID: "x"}},
	} {
		if r := c.call(setACL(list...)); r.Err != wire.InvalidACL {
			t.Errorf("%s: %s", name, r.Err)
		}
		q := zkCreate(dir+"/x", "", 0)
		q.ACL = list
		c.wants(wire.InvalidACL, q)
	}
	null := zkCreate(dir+"/x", "", 0)
	null.ACL = nil
	c.wants(wire.InvalidACL, null)
	// Doubles go, the order of the rest stays, and any bits are stored.
	list := []znode.ACL{{Perms: 127, Scheme: "world", ID: "anyone"}, {Perms: 0, Scheme: "ip", ID: "10.0.0.0/8"}, {Perms: 127, Scheme: "world", ID: "anyone"}}
	c.must(setACL(list...))
	if r := c.must(zkRead(wire.GetACL, dir, false)); !slices.Equal(r.ACL, list[:2]) {
		t.Errorf("stored as %v", r.ACL)
	}
	c.must(setACL(openACL...))
	// Who needs what.
	for perms, may := range map[uint32][]string{
		0: {"exists"}, 1: {"exists", "get", "list", "acl", "count"}, 2: {"exists", "set"}, 4: {"exists", "create"}, 8: {"exists", "delete"}, 16: {"exists", "acl", "setacl"},
	} {
		p := fmt.Sprint(dir, "/perm", perms)
		c.must(zkCreate(p, "", 0))
		c.must(zkCreate(p+"/child", "", 0))
		c.must(wire.Request{Op: wire.Op{Type: wire.SetACL, Path: p, ACL: []znode.ACL{{Perms: perms, Scheme: "world", ID: "anyone"}}, Version: -1}})
		for name, q := range map[string]wire.Request{
			"exists": zkRead(wire.Exists, p, false), "get": zkRead(wire.GetData, p, false), "list": zkRead(wire.GetChildren2, p, false),
			"acl": zkRead(wire.GetACL, p, false), "count": zkRead(wire.GetAllChildrenNumber, p, false), "set": zkSet(p, "", -1),
			"create": zkCreate(p+"/new", "", 0), "delete": zkDelete(p+"/child", -1),
			"setacl": {Op: wire.Op{Type: wire.SetACL, Path: p, ACL: []znode.ACL{{Perms: perms, Scheme: "world", ID: "anyone"}}, Version: -1}},
		} {
			want := wire.NoAuth
			if slices.Contains(may, name) {
				want = wire.OK
			}
			if r := c.call(q); r.Err != want {
				t.Errorf("with permissions %d, %s: %s", perms, name, r.Err)
			}
		}
	}
}

func zkIdentities(t *testing.T, host, _ string) {
	c := zkOpen(t, host)
	dir := c.dir()
	names := func() (out []string) {
		for _, i := range c.must(wire.Request{Op: wire.Op{Type: wire.WhoAmI}}).Clients {
			out = append(out, i.Scheme+":"+i.User)
		}
		slices.Sort(out)
		return out
	}
	if got := names(); !slices.Equal(got, []string{"ip:127.0.0.1"}) {
		t.Errorf("at first: %v", got)
	}
	q := zkCreate(dir+"/mine", "", 0)
	q.ACL = digestOnly("u:p")
	c.must(q)
	c.wants(wire.NoAuth, zkRead(wire.GetData, dir+"/mine", false))
	// What stands behind an auth is authenticated already, and digest never fails.
	auth := wire.Request{Op: wire.Op{Type: wire.Auth}, Scheme: "digest", Secret: []byte("u:p")}
	read := zkRead(wire.GetData, dir+"/mine", false)
	c.send(auth, read, auth)
	for _, typ := range []wire.Type{wire.Auth, wire.GetData, wire.Auth} {
		if r := c.reply(typ); r.Err != wire.OK {
			t.Errorf("%s: %s", typ, r.Err)
		}
	}
	c.auth("digest", "nocolon")
	c.auth("ip", "")
	if got := names(); !slices.Equal(got, []string{"digest:nocolon", "digest:u", "ip:127.0.0.1"}) {
		t.Errorf("in the end: %v", got)
	}
	// auth in a list stands for every identity that was proved.
	q = zkCreate(dir+"/auth", "", 0)
	q.ACL = []znode.ACL{{Perms: 31, Scheme: "auth", ID: "ignored"}}
	c.must(q)
	got := c.must(zkRead(wire.GetACL, dir+"/auth", false)).ACL
	want := []znode.ACL{{Perms: 31, Scheme: "digest", ID: zkDigest("u:p")}, {Perms: 31, Scheme: "digest", ID: zkDigest("nocolon")}}
	slices.SortFunc(got, func(a, b znode.ACL) int { return strings.Compare(b.ID, a.ID) })
	if !slices.Equal(got, want) {
		t.Errorf("auth became %v", got)
	}
	// Without the right to set it, a digest is shown without its hash.
	c.must(wire.Request{Op: wire.Op{Type: wire.SetACL, Path: dir + "/auth", ACL: append(digestOnly("u:p"), znode.ACL{Perms: 1, Scheme: "world", ID: "anyone"}), Version: -1}})
	stranger := zkOpen(t, host)
	stranger.must(wire.Request{Op: wire.Op{Type: wire.Sync, Path: "/"}})
	if got := stranger.must(zkRead(wire.GetACL, dir+"/auth", false)).ACL; got[0].ID != "u:x" {
		t.Errorf("a stranger sees %v", got)
	}
	// The superuser passes every check.
	stranger.auth("digest", zkSuper)
	stranger.must(zkRead(wire.GetData, dir+"/mine", false))
	// An unknown scheme is the end of the connection.
	c.send(wire.Request{Op: wire.Op{Type: wire.Auth}, Scheme: "nope", Secret: []byte("x")})
	if r := c.reply(wire.Auth); r.Err != wire.AuthFailed {
		t.Errorf("unknown scheme: %s", r.Err)
	}
	c.closed("an unknown scheme")
	// A server without SASL says so with nothing.
	s := zkOpen(t, host)
	if r := s.call(wire.Request{Op: wire.Op{Type: wire.SASL}, Secret: []byte{}}); r.Err != wire.OK || r.Data != nil || r.Zxid != 0 {
		t.Errorf("sasl: %+v", r)
	}
}

func zkReads(t *testing.T, host, other string) {
	c := zkOpen(t, host)
	dir := c.dir()
	for _, n := range []string{"/a", "/b", "/a/x"} {
		c.must(zkCreate(dir+n, n, 0))
	}
	got := c.must(zkRead(wire.GetChildren2, dir, false))
	slices.Sort(got.Names)
	if !slices.Equal(got.Names, []string{"a", "b"}) || got.Stat.NumChildren != 2 {
		t.Errorf("children: %v, %+v", got.Names, got.Stat)
	}
	if r := c.must(zkRead(wire.GetChildren, dir+"/b", false)); r.Names == nil || len(r.Names) != 0 {
		t.Errorf("children of a leaf: %#v", r.Names)
	}
	if r := c.must(zkRead(wire.GetAllChildrenNumber, dir, false)); r.Number != 3 {
		t.Errorf("%d descendants", r.Number)
	}
	c.must(zkCreate(dir+"/a/e", "", wire.FlagEphemeral))
	c.must(zkCreate(dir+"/ab", "", wire.FlagEphemeral))
	for prefix, want := range map[string][]string{
		dir + "/a": {dir + "/a/e", dir + "/ab"}, dir + "/a/": {dir + "/a/e"}, "": {dir + "/a/e", dir + "/ab"}, "/": {dir + "/a/e", dir + "/ab"}, "/none": nil,
	} {
		r := c.must(zkRead(wire.GetEphemerals, prefix, false))
		if slices.Sort(r.Names); !slices.Equal(r.Names, want) {
			t.Errorf("ephemerals at %q: %v", prefix, r.Names)
		}
	}
	// A sync at another server makes it see what was acknowledged here.
	o := zkOpen(t, other)
	for i := range 20 {
		p := fmt.Sprint(dir, "/sync", i)
		c.must(zkCreate(p, "", 0))
		o.send(wire.Request{Op: wire.Op{Type: wire.Sync, Path: p}}, zkRead(wire.Exists, p, false))
		o.reply(wire.Sync)
		if r := o.reply(wire.Exists); r.Err != wire.OK {
			t.Fatalf("behind a sync: %s", r.Err)
		}
	}
	// A ping is answered with how far the server is.
	last := c.last
	c.write(wire.Header{Xid: wire.XidPing, Type: wire.Ping}.Append(nil))
	if r := c.reply(wire.Ping); r.Xid != wire.XidPing || r.Zxid < last || len(r.record) != 0 {
		t.Errorf("ping: %+v after %s", r.ReplyHeader, last)
	}
}
