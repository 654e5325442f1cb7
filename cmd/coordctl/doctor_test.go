package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
)

// wellReply is what a server of a well cluster of three says.
func wellReply() *coordpb.StatusReply {
	r := &coordpb.StatusReply{Server: "n1", ClusterName: "prod", Leader: "n1", MembersFromLeader: true, Ready: true, FeatureLevel: 1, Version: "1.0"}
	for i := range 3 {
		m := &coordpb.Member{
			Name: fmt.Sprintf("n%d", i+1), Role: coordpb.Member_ROLE_VOTER, InContact: true, Ready: true, Version: "1.0", FeatureLevel: 1,
			GrpcAddress: fmt.Sprintf("h%d:7420", i+1), Disk: &coordpb.Disk{Free: 1 << 30, Budget: 1 << 30},
		}
		r.Members = append(r.Members, m)
	}
	r.Members[0].Role = coordpb.Member_ROLE_LEADER
	return r
}

// Whatever is wrong is found under its name, and is not called well; what could
// not be asked is neither.
func TestDoctorFindsWhatIsWrong(t *testing.T) {
	const all = "quorum servers states disks versions"
	for _, c := range []struct {
		name     string
		harm     func(*coordpb.StatusReply)
		finding  string // severity, check and the beginning of the text of one finding
		findings int
		well     string
	}{
		{"nothing", func(*coordpb.StatusReply) {}, "", 0, all},
		{
			"alarm", func(r *coordpb.StatusReply) { r.Alarm = "the states differ at log index 64" },
			"PROBLEM states the states differ at log index 64; snapshots and", 1, "quorum servers disks versions",
		},
		{
			"down", func(r *coordpb.StatusReply) { r.Members[2].InContact = false; r.Members[2].Detail = "no report for 3m" },
			"PROBLEM servers n3 is DOWN: no report for 3m", 2, "states",
		},
		{
			"down, and no more may be", func(r *coordpb.StatusReply) { r.Members[2].InContact = false },
			"PROBLEM quorum 2 of 3 voters are in contact, 2 are needed", 2, "states",
		},
		{
			"not ready", func(r *coordpb.StatusReply) { r.Members[1].Ready = false; r.Members[1].Detail = "9000 entries behind" },
			"PROBLEM servers n2 is not ready: 9000 entries behind", 1, "quorum states disks versions",
		},
		{"missing", func(r *coordpb.StatusReply) {
			r.Members = append(r.Members, &coordpb.Member{Name: "n4", Role: coordpb.Member_ROLE_MISSING})
		}, "PROBLEM servers n4 is in the list of peers", 1, "quorum states"},
		{
			"no leader", func(r *coordpb.StatusReply) { r.Leader, r.MembersFromLeader = "", false },
			"PROBLEM quorum no leader", 1, "disks versions",
		},
		{
			"silent leader", func(r *coordpb.StatusReply) { r.MembersFromLeader = false },
			"PROBLEM quorum the leader n1 gives no answer", 1, "disks versions",
		},
		{
			"not formed", func(r *coordpb.StatusReply) { r.Waiting, r.Leader = "n2 is not there", "" },
			"PROBLEM quorum the cluster is not formed: n2", 1, "servers disks versions",
		},
		{
			"two voters", func(r *coordpb.StatusReply) { r.Members = r.Members[:2] },
			"NOTICE quorum 2 voters can lose no more than 1 can", 1, "servers states disks versions",
		},
		{
			"one voter", func(r *coordpb.StatusReply) { r.Members = r.Members[:1] },
			"NOTICE quorum there is one voter", 1, "servers states disks versions",
		},
		{"joining", func(r *coordpb.StatusReply) {
			r.Members = append(r.Members, &coordpb.Member{Name: "n4", Role: coordpb.Member_ROLE_JOINING, InContact: true, Ready: true, Version: "1.0", FeatureLevel: 1, Disk: &coordpb.Disk{}})
		}, "NOTICE servers n4 has no vote yet", 1, "quorum states disks versions"},
		{
			"disk low", func(r *coordpb.StatusReply) { r.Members[1].Disk.Low = true },
			"PROBLEM disks n2 is low on disk: ", 1, "quorum servers states versions",
		},
		{
			"no snapshot", func(r *coordpb.StatusReply) { r.Members[1].Disk.Trouble = "no room" },
			"PROBLEM disks n2 cannot write a snapshot", 1, "quorum servers states versions",
		},
		{
			"above budget", func(r *coordpb.StatusReply) { r.Members[1].Disk.Store = 2 << 30 },
			"NOTICE disks n2: the data directory takes", 1, "quorum servers states versions",
		},
		{"disk not known", func(r *coordpb.StatusReply) { r.Members[1].Disk = nil }, "", 0, "quorum servers states versions"},
		{
			"upgrade under way", func(r *coordpb.StatusReply) { r.Members[0].Version, r.Members[0].FeatureLevel = "1.1", 2 },
			"NOTICE versions an upgrade is under way: n2, n3 run 1.0; n1 runs 1.1", 1, "quorum servers states disks",
		},
		{"not raised", func(r *coordpb.StatusReply) {
			for _, m := range r.Members {
				m.Version, m.FeatureLevel = "1.1", 2
			}
		}, "NOTICE versions all servers know feature level 2, the cluster is at 1", 1, "quorum servers states disks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			reply := wellReply()
			c.harm(reply)
			x := examine([]serverStatus{{endpoint: "h1:7420", reply: reply}})
			found := c.finding == ""
			for _, s := range x.Findings {
				found = found || strings.HasPrefix(s.Severity+" "+s.Check+" "+s.Text, c.finding)
			}
			if !found || len(x.Findings) != c.findings || strings.Join(x.OK, " ") != c.well {
				t.Errorf("found %+v, well %q; want %d with %q, well %q", x.Findings, x.OK, c.findings, c.finding, c.well)
			}
		})
	}
}

// An alarm that only a server knows that is not the one with the best view is
// reported, too; and an endpoint that does not answer, once.
func TestDoctorHearsEveryServer(t *testing.T) {
	other := wellReply()
	other.Server, other.MembersFromLeader, other.Alarm = "n2", false, "the states differ"
	best := wellReply()
	best.Members[0].Disk.Trouble, best.Members[2].InContact = "", false
	best.Members[1].Disk.Store = 2 << 30
	x := examine([]serverStatus{
		{endpoint: "h1:7420", reply: best},
		{endpoint: "h2:7420", reply: other},
		{endpoint: "h3:7420", err: errors.New("gone")},
		{endpoint: "h9:7420", err: errors.New("nobody")},
	})
	var out bytes.Buffer
	if err := x.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nPROBLEM  the states differ; ", "\nPROBLEM  n3 is DOWN", "\nPROBLEM  endpoint h9:7420 does not answer: "} {
		if !strings.Contains("\n"+out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "h3:7420") || strings.Contains(out.String(), "\nok") {
		t.Errorf("n3 is named twice, or something is called well that is not:\n%s", out.String())
	}
	if i, j := strings.LastIndex(out.String(), "PROBLEM"), strings.Index(out.String(), "NOTICE"); j < 0 || i > j {
		t.Errorf("problems do not come first:\n%s", out.String())
	}
}

// The clocks of the servers are compared with each other, whatever this machine's
// says, and a slow answer proves nothing.
func TestDoctorComparesClocks(t *testing.T) {
	const all = "quorum servers states disks versions"
	for _, c := range []struct {
		name    string
		off     [3]time.Duration // of each server's clock from that of this machine
		took    time.Duration    // the answer of each
		harm    func(all []serverStatus)
		finding string
		well    string
	}{
		{name: "equal", took: 10 * time.Millisecond, well: all + " clocks"},
		{name: "this machine's is wrong", off: [3]time.Duration{time.Hour, time.Hour, time.Hour + 100*time.Millisecond}, took: time.Millisecond, well: all + " clocks"},
		{
			name: "one is ahead", off: [3]time.Duration{0, 0, 3 * time.Second}, took: 200 * time.Millisecond, well: all,
			finding: "NOTICE clocks the clock of n3 is 3s ahead of that of n",
		},
		{
			name: "one is behind", off: [3]time.Duration{0, -time.Hour, 0}, took: 200 * time.Millisecond, well: all,
			finding: "PROBLEM clocks the clock of n",
		},
		{name: "too slow to tell", off: [3]time.Duration{0, 0, 900 * time.Millisecond}, took: 500 * time.Millisecond, well: all},
		{name: "surely less", off: [3]time.Duration{0, 0, 500 * time.Millisecond}, took: 100 * time.Millisecond, well: all + " clocks"},
		{name: "one does not say", took: time.Millisecond, well: all, harm: func(all []serverStatus) { all[1].reply.ClockUs = 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := time.Now()
			var answers []serverStatus
			for i, off := range c.off {
				r := wellReply()
				r.Server = fmt.Sprintf("n%d", i+1)
				r.ClockUs = asked.Add(c.took / 2).Add(off).UnixMicro()
				answers = append(answers, serverStatus{endpoint: r.Members[i].GrpcAddress, reply: r, asked: asked, answered: asked.Add(c.took)})
			}
			if c.harm != nil {
				c.harm(answers)
			}
			x := examine(answers)
			found := ""
			for _, s := range x.Findings {
				found += s.Severity + " " + s.Check + " " + s.Text
			}
			if !strings.HasPrefix(found, c.finding) || (found == "") != (c.finding == "") || strings.Join(x.OK, " ") != c.well {
				t.Errorf("found %q, well %q, details %q", found, x.OK, x.details)
			}
		})
	}
}
