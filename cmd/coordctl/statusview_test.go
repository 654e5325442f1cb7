package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/coordd/coord/api/coordpb"
)

// A follower whose leader is slow shows an old view: it says so, and calls
// nobody DOWN who has just answered or was not asked.
func TestOldViewIsCalledOne(t *testing.T) {
	view := &coordpb.StatusReply{
		Server: "n2", Leader: "n1", ClusterName: "prod", Ready: true, Version: "1.0", AppliedIndex: 9,
		Members: []*coordpb.Member{
			{Name: "n1", Role: coordpb.Member_ROLE_LEADER, GrpcAddress: "a:1", Detail: "no report for 3m"},
			{Name: "n2", Role: coordpb.Member_ROLE_VOTER, GrpcAddress: "b:1", Detail: "no report for 3m"},
			{Name: "n3", Role: coordpb.Member_ROLE_VOTER, GrpcAddress: "c:1", Detail: "no report for 3m"},
		},
	}
	st := statusOf([]serverStatus{{endpoint: "b:1", reply: view}, {endpoint: "c:1", err: errors.New("refused")}})
	states := map[string]string{}
	for _, m := range st.Servers {
		states[m.Name] = m.State
	}
	if states["n1"] != "unknown" || states["n2"] != "ok" || states["n3"] != "DOWN" || st.Healthy || st.View != "n2" {
		t.Errorf("%v, healthy %v, view %q", states, st.Healthy, st.View)
	}
	var out bytes.Buffer
	if err := (&env{stdout: &out, output: "table"}).printStatus(&out, st); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the leader n1 gives no answer", "this is n2's own, older view", "n1 is unknown: no report for 3m"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "n2 is") {
		t.Errorf("it complains of n2:\n%s", out.String())
	}
}

// What a server says of itself counts also when it is no good news.
func TestServerKnowsItselfBest(t *testing.T) {
	view := &coordpb.StatusReply{
		Server: "n1", Checks: []*coordpb.Check{{Name: "disk", Ok: true}, {Name: "leader", Detail: "no leader is known"}},
		Members: []*coordpb.Member{{Name: "n1", Role: coordpb.Member_ROLE_VOTER, Detail: "no report for 3m", Ready: true}},
	}
	m := statusOf([]serverStatus{{endpoint: "a:1", reply: view}}).Servers[0]
	if m.State != "not ready" || m.Detail != "leader: no leader is known" {
		t.Errorf("%s: %s", m.State, m.Detail)
	}
}
