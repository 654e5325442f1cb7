package main

import (
	"strings"
	"testing"
)

func TestStatusSaysWhatFollowsFromAFullDisk(t *testing.T) {
	low, spent := &diskItem{Free: 12 << 20, Held: 40 << 20, Reserve: 64 << 20, Low: true}, &diskItem{Low: true, Spent: true}
	fine := &diskItem{Free: 1 << 30, Held: 64 << 20, Reserve: 64 << 20}
	server := func(role string, d *diskItem) memberItem {
		return memberItem{Name: "n1", Role: role, State: "ok", InContact: true, Ready: true, Disk: d}
	}
	for _, c := range []struct {
		servers     []memberItem
		state, want string
	}{
		{[]memberItem{server("follower", low), server("leader", fine), server("follower", fine)}, stateDiskLow, "; writes are refused when one more server is short of room"},
		{[]memberItem{server("follower", low), server("leader", low), server("follower", fine)}, stateDiskLow, "; writes are refused"},
		{[]memberItem{server("follower", low), server("leader", fine), {Name: "n3", Role: "follower"}}, stateDiskLow, "; writes are refused"},
		{[]memberItem{server("follower", spent), server("leader", fine), server("follower", fine), server("follower", fine), server("follower", fine)}, stateDiskFull, "; writes are refused when 2 more servers are short of room"},
		{[]memberItem{server("observer", low), server("leader", fine)}, stateDiskLow, "of reserve"},
		{[]memberItem{server("leader", fine)}, "ok", ""},
		{[]memberItem{server("leader", nil)}, "ok", ""},
	} {
		st := clusterStatus{Servers: c.servers}
		st.weighDisks()
		m := st.Servers[0]
		if m.State != c.state || !strings.HasSuffix(m.Detail, c.want) || m.ok() == m.Disk.short() {
			t.Errorf("%d servers: %q, %q, ok %v; want %q, %q", len(c.servers), m.State, m.Detail, m.ok(), c.state, c.want)
		}
	}
	if text := low.room(); !strings.Contains(text, "12 MiB free beside 40 MiB of 64 MiB") {
		t.Errorf("%q", text)
	}
	st := clusterStatus{Servers: []memberItem{
		{Name: "n1", InContact: true, Disk: &diskItem{Trouble: "no room", Budget: 1}},
		{Name: "n2", InContact: true, Disk: &diskItem{Store: 3 << 20, Budget: 2 << 20}},
		{Name: "n3", InContact: true, Disk: &diskItem{Store: 2 << 20, Budget: 2 << 20}},
	}}
	if notes := st.diskNotes(); len(notes) != 2 || !strings.Contains(notes[0], "n1 cannot write a snapshot") || !strings.Contains(notes[1], "n2: ") {
		t.Errorf("%q", notes)
	}
}
