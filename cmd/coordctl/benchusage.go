package main

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/internal/buildinfo"
)

// usage is what servers and generator have used since they started.
type usage struct {
	servers map[string]*coordpb.StatsReply // by name
	own     time.Duration
}

// usage asks every server at the endpoints at the same time.
func (b *bench) usage(ctx context.Context) (usage, error) {
	a, err := b.admins()
	if err != nil {
		return usage{}, err
	}
	defer closeQuietly(a)
	p := b.pace(ctx)
	defer p.stop()
	u := usage{servers: map[string]*coordpb.StatsReply{}}
	var mu sync.Mutex
	endpoints := a.Endpoints()
	err = parallel(len(endpoints), len(endpoints), func(i int) error {
		s, err := a.At(endpoints[i]).Stats(p.ctx, &coordpb.StatsRequest{})
		if err != nil {
			return adminError("bench", p.result(err))
		}
		mu.Lock()
		defer mu.Unlock()
		u.servers[fmt.Sprintf("%s/%d", s.Server, s.Pid)] = s
		return nil
	})
	u.own = ownCPU()
	return u, err
}

// noteMissing says when the count leaves out servers that also did their part.
func (b *bench) noteMissing(ctx context.Context, u *usage) {
	st, err := b.clusterStatus(ctx)
	if err == nil && len(st.Servers) > len(u.servers) {
		b.warn("the endpoints name %d of %d servers: their CPU and memory is all that is counted", len(u.servers), len(st.Servers))
	}
}

// ownCPU is the user and system time of this process.
func ownCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// account adds what was used between two looks. A server that restarted in
// between counts from its start.
func (r *benchResult) account(before, after *usage, elapsed time.Duration) {
	r.Version = buildinfo.Version
	r.RSS = map[string]int64{}
	var cpu float64
	var entries, transactions uint64
	for id, s := range after.servers {
		r.RSS[s.Server] = s.RssBytes
		cpu += s.CpuSeconds - before.servers[id].GetCpuSeconds()
		// Every server applies every entry: the one that applied most will do.
		if n := s.Transactions - before.servers[id].GetTransactions(); n > transactions {
			transactions, entries = n, s.Entries-before.servers[id].GetEntries()
		}
	}
	r.ServerCores = cpu / elapsed.Seconds()
	if entries > 0 {
		r.OpsPerEntry = float64(transactions) / float64(entries)
	}
	if r.Ops > 0 {
		r.ServerCPU = cpu * 1e6 / float64(r.Ops)
		r.ClientCPU = float64((after.own-before.own)/time.Microsecond) / float64(r.Ops)
	}
}
