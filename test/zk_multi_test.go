package test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
)

func zkMultis(t *testing.T, host, _ string) {
	c := zkOpen(t, host)
	dir := c.dir()
	a := dir + "/a"
	typed := func(typ wire.Type, path string, flags int32) wire.Op { return zkTyped(typ, path, flags, time.Hour).Op }
	check := wire.Op{Type: wire.Check, Path: a, Version: -1}
	r := c.must(zkMulti(zkCreate(a, "1", 0).Op, typed(wire.Create2, a+"/s-", wire.FlagSequential), typed(wire.CreateContainer, a+"/c", 4),
		typed(wire.CreateTTL, a+"/t", 5), zkSet(a, "2", 0).Op, check, zkDelete(a+"/c", -1).Op))
	want := []wire.Type{wire.Create, wire.Create2, wire.Create2, wire.Create2, wire.SetData, wire.Check, wire.Delete}
	for i, res := range r.Results {
		if i >= len(want) || res.Type != want[i] || res.Err != wire.OK {
			t.Errorf("result %d: %+v", i, res)
		}
	}
	if len(r.Results) != len(want) || r.Results[1].Reply.Path != a+"/s-0000000000" || r.Results[4].Reply.Stat.Version != 1 {
		t.Errorf("results: %+v", r.Results)
	}
	if st := c.must(zkRead(wire.Exists, a, false)).Stat; st.Czxid != r.Zxid || st.Mzxid != r.Zxid || st.Pzxid != r.Zxid || st.Ctime != st.Mtime {
		t.Errorf("one transaction, one zxid: %+v", st)
	}
	// One failure undoes all, numbers included: the header says ok, the body what
	// became of each.
	for name, m := range map[string]struct {
		ops  []wire.Op
		want []wire.Code
	}{
		"in the middle":                  {[]wire.Op{zkSet(a, "3", -1).Op, zkDelete(dir+"/none", -1).Op, zkCreate(dir+"/x", "", 0).Op}, []wire.Code{0, wire.NoNode, wire.RuntimeInconsistency}},
		"a check":                        {[]wire.Op{{Type: wire.Check, Path: a, Version: 7}, zkSet(a, "3", -1).Op}, []wire.Code{wire.BadVersion, wire.RuntimeInconsistency}},
		"flags, behind what fails first": {[]wire.Op{zkDelete(dir+"/none", -1).Op, zkCreate(dir+"/x", "", 7).Op}, []wire.Code{wire.NoNode, wire.RuntimeInconsistency}},
		"flags":                          {[]wire.Op{zkCreate(dir+"/x", "", 0).Op, zkCreate(dir+"/y", "", 7).Op}, []wire.Code{0, wire.BadArguments}},
		"a sequence":                     {[]wire.Op{zkCreate(a+"/s-", "", wire.FlagSequential).Op, zkCreate(a, "", 0).Op}, []wire.Code{0, wire.NodeExists}},
	} {
		r := c.must(zkMulti(m.ops...))
		for i, code := range m.want {
			if len(r.Results) != len(m.want) || r.Results[i].Type != 0 || r.Results[i].Err != code {
				t.Errorf("%s: %+v", name, r.Results)
				break
			}
		}
	}
	if r := c.must(zkRead(wire.GetData, a, false)); string(r.Data) != "2" || r.Stat.Version != 1 {
		t.Errorf("a failed multi left %q, %+v", r.Data, r.Stat)
	}
	if r := c.must(zkCreate(a+"/s-", "", wire.FlagSequential)); !strings.HasSuffix(r.Path, "0000000003") {
		t.Errorf("a failed multi used up a number: %s", r.Path)
	}
	// Later operations see earlier ones; watches fire in their order.
	c.must(zkRead(wire.GetChildren, dir, true))
	c.must(zkMulti(zkCreate(dir+"/p", "", 0).Op, zkCreate(dir+"/p/q", "", 0).Op, zkDelete(dir+"/p/q", 0).Op, zkDelete(dir+"/p", 0).Op))
	c.wantEvents("once", children(dir))
	if r := c.must(zkMulti()); len(r.Results) != 0 {
		t.Errorf("empty: %+v", r.Results)
	}
	c.wants(wire.MarshallingError, zkMulti(zkRead(wire.GetData, a, false).Op))
	c.wants(wire.MarshallingError, zkMulti(zkSet(a, "", -1).Op, zkRead(wire.GetData, a, false).Op))
	// Reads together: each for itself.
	reads := wire.Request{Op: wire.Op{Type: wire.MultiRead}, Ops: []wire.Op{zkRead(wire.GetData, a, false).Op, zkRead(wire.GetData, dir+"/none", false).Op, zkRead(wire.GetChildren, a, false).Op}}
	r = c.must(reads)
	if len(r.Results) != 3 || string(r.Results[0].Reply.Data) != "2" || r.Results[1].Err != wire.NoNode || len(r.Results[2].Reply.Names) != 3 {
		t.Errorf("multiRead: %+v", r.Results)
	}
	c.wants(wire.MarshallingError, wire.Request{Op: wire.Op{Type: wire.MultiRead}, Ops: []wire.Op{zkSet(a, "", -1).Op}})
	// Two contenders in one transaction have two names.
	r = c.must(zkMulti(zkCreate(dir+"/l-", "", wire.FlagEphemeralSequential).Op, zkCreate(dir+"/l-", "", wire.FlagEphemeralSequential).Op))
	if r.Results[0].Reply.Path >= r.Results[1].Reply.Path {
		t.Errorf("two contenders: %+v", r.Results)
	}
}

func zkSpecialNodes(t *testing.T, host, _ string) {
	c := zkOpen(t, host)
	names := c.must(zkRead(wire.GetChildren, "/zookeeper", false)).Names
	if !strings.Contains(fmt.Sprint(names), "config") || !strings.Contains(fmt.Sprint(names), "quota") {
		t.Errorf("/zookeeper has %v", names)
	}
	// Curator takes its servers from here, so all must be in it.
	line := `server\.\d+=127\.0\.0\.1:\d+:\d+:participant;127\.0\.0\.1:\d+\n`
	form := regexp.MustCompile(`^(` + line + `){3}version=[0-9a-f]+$`)
	poll(t, zkPatient, "/zookeeper/config has all servers", func() error {
		if got := c.must(zkRead(wire.GetData, zkConfigNode, true)); !form.Match(got.Data) {
			return fmt.Errorf("%q", got.Data)
		}
		return nil
	})
	c.events = nil
	if got := c.must(zkRead(wire.GetACL, zkConfigNode, false)).ACL; len(got) != 1 || got[0] != (znode.ACL{Perms: 1, Scheme: "world", ID: "anyone"}) {
		t.Errorf("its ACL: %v", got)
	}
	c.wants(wire.NoAuth, zkCreate(zkConfigNode+"/x", "", 0))
	c.wants(wire.NoAuth, zkSet(zkConfigNode, "", -1))
	reconfig := wire.Request{Op: wire.Op{Type: wire.Reconfig}, Leaving: "3", ConfigID: -1}
	c.wants(wire.NoAuth, reconfig)
	super := zkOpen(t, host)
	super.auth("digest", zkSuper)
	reconfig.ConfigID = 1 << 40 // another than the present one: nobody is removed
	super.wants(wire.BadVersion, reconfig)
	// Quota: usage is kept up to date once there is a limit.
	dir := c.dir()
	quota := "/zookeeper/quota" + dir
	for _, q := range []wire.Request{zkCreate(quota, "", 0), zkCreate(quota+"/zookeeper_limits", "count=100,bytes=10000", 0), zkCreate(quota+"/zookeeper_stats", "count=0,bytes=0", 0)} {
		c.must(q)
	}
	usage := func(want string) {
		t.Helper()
		if got := c.must(zkRead(wire.GetData, quota+"/zookeeper_stats", false)); !strings.HasPrefix(string(got.Data), want) {
			t.Errorf("usage %q, want %q", got.Data, want)
		}
	}
	c.must(zkCreate(dir+"/a", "12345", 0))
	usage("count=2,bytes=5")
	c.must(zkSet(dir+"/a", "1234567", -1))
	usage("count=2,bytes=7")
	c.must(zkDelete(dir+"/a", -1))
	usage("count=1,bytes=0")
	// Hard limits are enforced.
	c.must(zkSet(quota+"/zookeeper_limits", "count=100,bytes=10000=;byteHardLimit=10;countHardLimit=2", -1))
	c.must(zkCreate(dir+"/a", "1234567890", 0))
	c.wants(wire.QuotaExceeded, zkCreate(dir+"/b", "", 0))
	c.wants(wire.QuotaExceeded, zkSet(dir+"/a", "12345678901", -1))
	usage("count=2,bytes=10")
}

const zkConfigNode = "/zookeeper/config"

func zkReaped(t *testing.T, host, _ string) {
	c := zkOpen(t, host)
	dir := c.dir()
	c.must(zkTyped(wire.CreateContainer, dir+"/used", 4, 0))
	c.must(zkTyped(wire.CreateContainer, dir+"/new", 4, 0))
	c.must(zkCreate(dir+"/used/x", "", 0))
	c.must(zkDelete(dir+"/used/x", -1))
	c.must(zkTyped(wire.CreateTTL, dir+"/ttl", 5, 300*time.Millisecond))
	c.must(zkTyped(wire.CreateTTL, dir+"/parent", 5, 300*time.Millisecond))
	c.must(zkCreate(dir+"/parent/x", "", 0))
	poll(t, 60*time.Second, "what is empty and old is gone", func() error {
		for _, p := range []string{dir + "/used", dir + "/ttl"} {
			if r := c.call(zkRead(wire.Exists, p, false)); r.Err != wire.NoNode {
				return fmt.Errorf("%s: %w", p, r.Err)
			}
		}
		return nil
	})
	c.must(zkRead(wire.Exists, dir+"/new", false))
	c.must(zkRead(wire.Exists, dir+"/parent", false))
}
