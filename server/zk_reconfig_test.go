package server

import (
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/wire"
)

func ensembleOf(names ...string) (out []cluster.Member) {
	for _, n := range names {
		name, role, ok := strings.Cut(n, "/")
		m := cluster.Member{Name: name, ID: name + "~1", Role: cluster.RoleVoter, InContact: true, PeerAddress: name + ":7421", ZooKeeperAddress: name + ":2181"}
		if ok {
			m.Role = cluster.Role(role)
		}
		out = append(out, m)
	}
	return out
}

func TestReconfigMeansWhatItMeansToZooKeeper(t *testing.T) {
	members := numbered(ensembleOf("n1", "n2/leader", "n3", "n4/joining", "n5/observer", "n9/missing"))
	for _, c := range []struct {
		joining, leaving, list string
		leave, promote         string
		code                   wire.Code
	}{
		{leaving: "3", leave: "n3"},
		{leaving: "3,5", leave: "n3 n5"},
		{leaving: "5, 3\n", leave: "n5 n3"},
		{leaving: "9,77"}, // not there: it has left
		{joining: "server.4=n4:7421:7421:participant;2181", promote: "n4"},
		{joining: "server.4=n4:7421:7421;2181", promote: "n4"},
		{joining: "server.4=n4:7421:7421:observer;2181"},
		{joining: "server.1=n1:7421:7421:participant;2181"},
		{joining: "server.5=n5:7421:7421:OBSERVER"},
		{joining: "server.4=n4:7421:7421", leaving: "1", promote: "n4", leave: "n1"},
		{list: "server.1=a:1:1,server.2=b:1:1\nserver.3=c:1:1\nversion=7", leave: "n4 n5"},
		{joining: "server.5=n5:7421:7421:participant", code: wire.BadArguments},
		{joining: "server.1=n1:7421:7421:observer", code: wire.BadArguments},
		{joining: "server.9=n9:7421:7421", code: wire.NewConfigNoQuorum},
		{joining: "server.6=n6:7421:7421", leaving: "1", code: wire.NewConfigNoQuorum},
		{list: "server.1=a:1:1", leaving: "2", code: wire.BadArguments},
		{joining: "server.x=a:1:1", code: wire.BadArguments},
		{joining: "n6=a:1:1", code: wire.BadArguments},
		{joining: "server.6=", code: wire.BadArguments},
		{joining: "server.-1=a:1:1", code: wire.BadArguments},
		{leaving: "-1", code: wire.BadArguments},
		{leaving: "n3", code: wire.BadArguments},
		{leaving: "99999999999999999999", code: wire.BadArguments},
		{joining: "server.3=n3:1:1", leaving: "3", code: wire.BadArguments},
		{},
	} {
		plan, code := planReconfig(&wire.Request{Joining: c.joining, Leaving: c.leaving, Members: c.list}, members)
		names := func(list []cluster.Member) string {
			var out []string
			for _, m := range list {
				out = append(out, m.Name)
			}
			return strings.Join(out, " ")
		}
		if code != c.code || code == wire.OK && (names(plan.leave) != c.leave || names(plan.promote) != c.promote) {
			t.Errorf("%+v: leave %q, promote %q, %s", c, names(plan.leave), names(plan.promote), code)
		}
	}
}

// A removal by a number that is sent again must not take another server out, to
// which the number has gone meanwhile.
func TestNumbersThatAreOnlyPlacesNeedTheirVersion(t *testing.T) {
	before := ensembleOf("alpha", "beta/leader", "gamma", "delta/missing")
	after := ensembleOf("beta/leader", "gamma")
	mixed := append(ensembleOf("m1"), ensembleOf("n1", "n2/leader")...)
	for _, c := range []struct {
		version int64
		members []cluster.Member
		shown   []cluster.Member // to clients at that version
		want    bool
	}{
		{-1, ensembleOf("n1", "n2/leader", "n3"), before, true}, // no other can be called 3
		{7, ensembleOf("n1", "n2/leader", "n3"), before, true},
		{-1, before, before, false},
		{7, before, before, true},
		{7, after, before, false}, // not shown yet
		{-1, mixed, mixed, false},
		{7, mixed, mixed, true},
	} {
		if got := numbersHold(&wire.Request{Leaving: "1", ConfigID: c.version}, c.members, zkConfigLines(c.shown, nil)); got != c.want {
			t.Errorf("version %d, %v: %v", c.version, numbered(c.members), got)
		}
	}
	if numbered(before)[1].Name != "alpha" || numbered(after)[1].Name != "beta" {
		t.Error("the numbers do not move: nothing was shown")
	}
}

func TestConfigurationShowsTheMembersAndNobodyElse(t *testing.T) {
	old := append(ensembleOf("n1", "n2/leader", "n3", "n4/joining", "n5/observer"), cluster.Member{Name: "n6", Role: cluster.RoleMissing, PeerAddress: "n6:7421"})
	// Of a server and its successor, the one that is there.
	old = append(old, cluster.Member{Name: "n3", ID: "n3~0", Role: cluster.RoleVoter, PeerAddress: "old:7421"})
	want := []string{
		"server.1=n1:7421:7421:participant;n1:2181", "server.2=n2:7421:7421:participant;n2:2181", "server.3=n3:7421:7421:participant;n3:2181",
		"server.4=n4:7421:7421:observer;n4:2181", "server.5=n5:7421:7421:observer;n5:2181",
	}
	if got := zkConfigLines(old, nil); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	// One that is down keeps the address for clients that it had.
	down := ensembleOf("n1", "n2")
	down[1].ZooKeeperAddress, down[1].InContact = "", false
	if got := zkConfigLines(down, want); !slices.Equal(got, want[:2]) {
		t.Errorf("%q", got)
	}
}
