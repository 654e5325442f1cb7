package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/zxid"
)

// clusterStatus is what `status` prints. Healthy is true only when every
// server of the configured list is a voter, in contact and ready.
type clusterStatus struct {
	Cluster   string `json:"cluster"`
	ClusterID string `json:"clusterId"`
	Healthy   bool   `json:"healthy"`
	Leader    string `json:"leader"`
	Term      string `json:"term"`
	Zxid      string `json:"zxid"`
	Sessions  int64  `json:"sessions"`
	Znodes    int64  `json:"znodes"`
	DataBytes int64  `json:"dataBytes"`
	Waiting   string `json:"waiting,omitempty"`
	// Alarm says why snapshots and changes of the membership are refused.
	Alarm string `json:"alarm,omitempty"`
	// View is the server whose own view this is, which may be older; empty if it
	// is the leader's.
	View    string       `json:"view,omitempty"`
	Servers []memberItem `json:"servers"`
	// Unreachable endpoints, with the reason.
	Unreachable map[string]string `json:"unreachable,omitempty"`

	level uint32 // agreed on; 0: not known
}

// memberItem is one server as scripts see it.
type memberItem struct {
	Name      string `json:"name"`
	Role      string `json:"role"`
	State     string `json:"state"`
	Ready     bool   `json:"ready"`
	InContact bool   `json:"inContact"`
	Behind    string `json:"behind"`
	Peer      string `json:"peerAddress"`
	GRPC      string `json:"grpcAddress"`
	HTTP      string `json:"httpAddress"`
	Version   string `json:"version"`
	Sessions  int64  `json:"sessions"`
	UptimeMs  int64  `json:"uptimeMs"`
	ID        string `json:"id,omitempty"` // name~incarnation
	// RoleSinceMs is for how long it has had its role, counted from its start at
	// most; LastContactMs how long ago the leader heard of it.
	RoleSinceMs   *int64 `json:"roleSinceMs,omitempty"`
	LastContactMs *int64 `json:"lastContactMs,omitempty"`
	Detail        string `json:"detail,omitempty"`
	// Disk is the room of the server; nil: nothing is known of it.
	Disk *diskItem `json:"disk,omitempty"`

	level uint32 // the highest it knows; 0: not known
}

var roleNames = map[coordpb.Member_Role]string{
	coordpb.Member_ROLE_LEADER:  "leader",
	coordpb.Member_ROLE_VOTER:   "follower",
	coordpb.Member_ROLE_JOINING: "joining",
	coordpb.Member_ROLE_MISSING: "missing",

	coordpb.Member_ROLE_OBSERVER: "observer",
}

func newMemberItem(m *coordpb.Member, newest uint64) memberItem {
	item := memberItem{
		Name: m.Name, Role: roleNames[m.Role], Ready: m.Ready, InContact: m.InContact,
		Peer: m.PeerAddress, GRPC: m.GrpcAddress, HTTP: m.HttpAddress, Version: m.Version,
		level: m.FeatureLevel, Sessions: m.Sessions, UptimeMs: m.UptimeMs, Detail: m.Detail, State: "ok", Disk: newDiskItem(m.Disk),
		ID: m.Id, RoleSinceMs: ifKnown(m.RoleSinceMs), LastContactMs: ifKnown(m.LastContactMs),
	}
	if newest >= m.AppliedIndex {
		item.Behind = strconv.FormatUint(newest-m.AppliedIndex, 10)
	}
	switch {
	case !m.InContact:
		item.State, item.Behind = "DOWN", ""
	case !m.Ready:
		item.State = "not ready"
	}
	return item
}

// ifKnown is a time that is not negative, which would mean unknown.
func ifKnown(ms int64) *int64 {
	if ms < 0 {
		return nil
	}
	return &ms
}

// ok says whether the server does its part in full.
func (m *memberItem) ok() bool {
	return m.InContact && m.Ready && (m.votes() || m.Role == "observer") && !m.Disk.short()
}

func newStatusCmd(e *env) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say whether the cluster is well",
		Long: `Say whether the cluster is well. The exit code is 0 only when every server of the
cluster's list is a voter or an observer, in contact and ready, and 8 otherwise.`,
		Example: "  coordctl status\n  coordctl status --json | jq -r .leader",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for {
				st, err := e.clusterStatus(cmd.Context())
				if err != nil {
					return err
				}
				if watch && e.width() > 0 {
					fmt.Fprint(e.stdout, "\x1b[H\x1b[2J")
				}
				if err := e.object("Status", st, func(w io.Writer) error { return e.printStatus(w, st) }); err != nil {
					return err
				}
				if !watch {
					return healthError(st)
				}
				select {
				case <-cmd.Context().Done():
					return nil
				case <-time.After(time.Second):
				}
			}
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again every second")
	return cmd
}

func healthError(st *clusterStatus) error {
	if st.Healthy {
		return nil
	}
	return errUnhealthy
}

// clusterStatus asks all endpoints and takes the members from the one that
// knows most: a server that could ask the leader, else the newest.
func (e *env) clusterStatus(ctx context.Context) (*clusterStatus, error) {
	all, err := e.askAll(ctx, e.timeout)
	if err != nil {
		return nil, err
	}
	if err := unreachable("status", all); err != nil {
		return nil, e.unmask(err)
	}
	return statusOf(all), nil
}

// statusOf puts together what the servers have said; at least one has.
func statusOf(all []serverStatus) *clusterStatus {
	st := &clusterStatus{Servers: []memberItem{}}
	var best *coordpb.StatusReply
	for _, s := range all {
		switch {
		case s.err != nil:
			if st.Unreachable == nil {
				st.Unreachable = map[string]string{}
			}
			st.Unreachable[s.endpoint] = reason(s.attempt().Err).Error()
		case best == nil || better(s.reply, best):
			best = s.reply
		}
	}
	firsthand(best, all)
	st.fill(best)
	if !best.MembersFromLeader {
		st.doubt(best, all)
	}
	return st
}

func better(a, b *coordpb.StatusReply) bool {
	if a.MembersFromLeader != b.MembersFromLeader {
		return a.MembersFromLeader
	}
	return a.Zxid > b.Zxid
}

func (st *clusterStatus) fill(r *coordpb.StatusReply) {
	st.Cluster, st.ClusterID, st.Leader, st.Waiting = r.ClusterName, r.ClusterId, r.Leader, r.Waiting
	st.Term, st.Zxid = strconv.FormatUint(r.Term, 10), zxid.ID(r.Zxid).String()
	st.Sessions, st.Znodes, st.DataBytes = r.Sessions, r.Znodes, r.DataBytes
	newest := r.AppliedIndex
	for _, m := range r.Members {
		newest = max(newest, m.AppliedIndex)
	}
	st.Alarm, st.level = r.Alarm, r.FeatureLevel
	st.Healthy = r.Leader != "" && r.MembersFromLeader && len(r.Members) > 0 && r.Alarm == ""
	for _, m := range r.Members {
		item := newMemberItem(m, newest)
		st.Healthy = st.Healthy && item.ok()
		st.Servers = append(st.Servers, item)
	}
	st.weighDisks()
}

// voters counts who has a vote, and who of them is in contact.
func (st *clusterStatus) voters() (all, inContact int) {
	for i := range st.Servers {
		if m := &st.Servers[i]; m.votes() {
			all++
			if m.InContact {
				inContact++
			}
		}
	}
	return all, inContact
}

// summary is the first line: how many servers work and how many may still fail.
func (st *clusterStatus) summary() string {
	voters, good := st.voters()
	spare := good - (voters/2 + 1)
	switch {
	case st.Waiting != "":
		return "not formed: " + st.Waiting
	case st.View != "" && st.Leader != "":
		return fmt.Sprintf("UNKNOWN: the leader %s gives no answer", st.Leader)
	case st.Leader == "":
		return "NO LEADER: writes and normal reads wait"
	case st.Healthy:
		return fmt.Sprintf("healthy; %d of %d servers, can lose %d", good, voters, spare)
	default:
		return fmt.Sprintf("DEGRADED; %d of %d servers, can lose %d", good, voters, max(spare, 0))
	}
}

func (e *env) printStatus(w io.Writer, st *clusterStatus) error {
	fmt.Fprintf(w, "%s   %s        leader %s, term %s        zxid %s\n", st.Cluster, st.summary(), dash(st.Leader), st.Term, st.Zxid)
	fmt.Fprintf(w, "sessions %d   znodes %d, %s\n", st.Sessions, st.Znodes, size(st.DataBytes))
	if st.Alarm != "" {
		fmt.Fprintf(w, "ALARM: %s; snapshots and changes of the membership are refused\n", st.Alarm)
	}
	if st.View != "" && st.Waiting == "" {
		fmt.Fprintf(w, "this is %s's own, older view: it has not heard from the leader how the others are\n", st.View)
	}
	for _, endpoint := range slices.Sorted(maps.Keys(st.Unreachable)) {
		fmt.Fprintf(w, "endpoint %s does not answer: %s\n", endpoint, st.Unreachable[endpoint])
	}
	for i := range st.Servers {
		if m := &st.Servers[i]; !m.ok() && m.Detail != "" {
			fmt.Fprintf(w, "%s is %s: %s\n", m.Name, m.State, m.Detail)
		}
	}
	for _, note := range st.diskNotes() {
		fmt.Fprintln(w, note)
	}
	return e.printTable(memberTable(st.Servers))
}

func memberTable(members []memberItem) table {
	t := table{
		header: []string{"NODE", "ROLE", "STATE", "BEHIND", "CLIENTS", "UP", "VERSION", "GRPC"},
		wide:   []string{"STORE", "FREE", "PEER", "HTTP", "DETAIL"},
	}
	for i := range members {
		m := &members[i]
		t.rows = append(t.rows, []string{
			m.Name, m.Role, m.State, dash(m.Behind), strconv.FormatInt(m.Sessions, 10), m.up(), dash(m.Version), dash(m.GRPC),
			m.Disk.store(), m.Disk.free(), dash(m.Peer), dash(m.HTTP), dash(m.Detail),
		})
	}
	return t
}

// up is for how long the server has been running.
func (m *memberItem) up() string {
	if m.UptimeMs <= 0 || !m.InContact {
		return "-"
	}
	return ago(time.Duration(m.UptimeMs) * time.Millisecond)
}
