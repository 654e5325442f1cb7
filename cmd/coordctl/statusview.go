package main

import (
	"slices"

	"github.com/coordd/coord/api/coordpb"
)

// Words for the state of a server about which no leader was heard.
const (
	stateWaiting = "waiting" // for the cluster to be formed
	stateUnknown = "unknown" // it was not asked, and what is known of it may be old
)

// firsthand corrects a view that is not the leader's with what the servers that
// answered say of themselves: such a view is as old as the last leader's reports.
func firsthand(view *coordpb.StatusReply, all []serverStatus) {
	if view.MembersFromLeader {
		return
	}
	for _, m := range view.Members {
		r := replyOf(m.Name, all)
		if r == nil {
			continue
		}
		if !m.InContact || r.Ready {
			m.Detail = complaint(r)
		}
		m.InContact, m.Ready, m.Version = true, r.Ready, r.Version
		m.AppliedIndex, m.UptimeMs = max(m.AppliedIndex, r.AppliedIndex), r.UptimeMs
	}
}

// replyOf is what a server said of itself, nil if it was not asked or silent.
func replyOf(name string, all []serverStatus) *coordpb.StatusReply {
	for i := range all {
		if all[i].err == nil && all[i].reply.Server == name {
			return all[i].reply
		}
	}
	return nil
}

// complaint is the first check of a server that fails, "" if it is well.
func complaint(r *coordpb.StatusReply) string {
	i := slices.IndexFunc(r.Checks, func(c *coordpb.Check) bool { return !c.Ok })
	if i < 0 {
		return ""
	}
	return r.Checks[i].Name + ": " + r.Checks[i].Detail
}

// doubt says whose view it is, and claims nothing of servers that were not heard:
// DOWN is only who did not answer at an endpoint that was asked.
func (st *clusterStatus) doubt(view *coordpb.StatusReply, all []serverStatus) {
	st.View = view.Server
	for i := range st.Servers {
		m := &st.Servers[i]
		_, refused := st.Unreachable[m.GRPC]
		switch r := replyOf(m.Name, all); {
		case r != nil && r.Waiting != "":
			m.Role, m.State, m.Detail = stateWaiting, stateWaiting, ""
		case r != nil || refused:
		case st.Waiting != "":
			m.State, m.Detail = stateUnknown, ""
		case !m.InContact:
			m.State = stateUnknown
		}
	}
}
