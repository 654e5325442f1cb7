package server

import (
	"context"
	"os"
	rtmetrics "runtime/metrics"
	"strings"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

// Stats implements coordpb.AdminServer.
func (a adminService) Stats(ctx context.Context, _ *coordpb.StatsRequest) (*coordpb.StatsReply, error) {
	if err := a.enter(ctx, "stats"); err != nil {
		return nil, err
	}
	s := a.s
	counts := s.cluster.Counters()
	usage := ownUsage()
	rep := &coordpb.StatsReply{
		Server: s.cfg.Cluster.Name, Pid: int64(os.Getpid()),
		CpuSeconds: usage.cpu.Seconds(), RssBytes: usage.rss,
		Connections: int64(s.grpcListener.count()), Watches: int64(s.hub.watchCount()),
		Requests: s.metrics.total(), EventsSent: s.hub.eventTotal(),
		Proposals: counts.Proposals, Entries: counts.Entries, Transactions: counts.Transactions,
		Deduplicated: counts.Repeated + s.hub.deduplicated.Load(),
	}
	rep.HeapBytes, rep.Goroutines = runtimeNumbers()
	s.machine.View(func(v *fsm.View) {
		c := v.Tree.Counts()
		rep.Sessions, rep.Znodes, rep.DataBytes = int64(v.Sessions.Len()), int64(c.Nodes), c.DataBytes
	})
	return rep, nil
}

// usage is what the process has taken from the machine.
type usage struct {
	cpu time.Duration // user and system
	rss int64         // bytes
}

// runtimeNumbers reads the size of the live heap and the number of goroutines
// without stopping the world.
func runtimeNumbers() (heap, goroutines int64) {
	samples := []rtmetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/sched/goroutines:goroutines"}}
	rtmetrics.Read(samples)
	return int64(samples[0].Value.Uint64()), int64(samples[1].Value.Uint64())
}

// maxSessionPage bounds one page of the list of sessions.
const maxSessionPage = 1000

// Sessions implements coordpb.AdminServer.
func (a adminService) Sessions(ctx context.Context, req *coordpb.SessionsRequest) (*coordpb.SessionsReply, error) {
	if err := a.enter(ctx, "sessions"); err != nil {
		return nil, err
	}
	limit := int(req.GetLimit())
	if limit <= 0 || limit > maxSessionPage {
		limit = maxSessionPage
	}
	rep := &coordpb.SessionsReply{}
	a.s.machine.View(func(v *fsm.View) {
		page := v.Sessions.Page(session.ID(req.GetAfter()), limit+1)
		if rep.More = len(page) > limit; rep.More {
			page = page[:limit]
		}
		for _, one := range page {
			rep.Sessions = append(rep.Sessions, sessionOut(v, one))
		}
	})
	for _, one := range rep.GetSessions() { // outside the state's lock
		id := session.ID(one.GetId())
		one.Watches, one.LastHeardMs = a.s.hub.watchesOf(id), -1
		if silent, ok := a.s.cluster.SilentFor(id); ok {
			one.LastHeardMs = silent.Milliseconds()
		} else if silent, ok := a.s.hub.silentFor(id, a.s.clock.now()); ok {
			one.LastHeardMs = silent.Milliseconds()
		}
	}
	return rep, nil
}

func sessionOut(v *fsm.View, s *session.Session) *coordpb.SessionInfo {
	name, _, _ := strings.Cut(s.Server, "~")
	return &coordpb.SessionInfo{
		Id: uint64(s.ID), Name: s.Name, Address: s.Address, Server: name, TimeoutMs: s.Timeout.Milliseconds(),
		Ephemerals: int64(len(v.Tree.Ephemerals(s.ID, ""))), Protocol: s.Protocol.String(),
		Connection: s.Generation, Identity: s.Identity, Suspect: s.Suspected != 0,
	}
}

// maskDigest leaves the hash of a password out of what is logged.
func maskDigest(scheme, id string) string {
	if user, _, ok := strings.Cut(id, ":"); ok && scheme == "digest" {
		return user + ":x"
	}
	return id
}
