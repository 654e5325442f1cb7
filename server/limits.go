package server

import (
	"fmt"

	"golang.org/x/time/rate"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

// The settings that errors name when a limit was met.
const (
	settingNode          = "limits.node_size"
	settingPath          = "limits.path_size"
	settingFrame         = "limits.frame_size"
	settingOps           = "limits.ops_per_transaction"
	settingWatches       = "limits.watches_per_session"
	settingAddress       = "limits.sessions_per_address"
	settingSessions      = "limits.sessions"
	settingInFlight      = "limits.requests_in_flight"
	settingQueue         = "limits.queue_size"
	settingUnaryInFlight = "limits.unary_in_flight"
)

// Limits bounds what clients may use. A field that is zero stands for its
// default, except where it says that zero means no limit.
type Limits struct {
	NodeBytes        int // data of one znode; 1 MiB
	PathBytes        int // a path; 4096
	FrameBytes       int // one message of a client; 4 MiB
	OpsPerMulti      int // operations of one transaction; 4096
	ChildrenPerReply int // entries of one page of a listing; 100,000

	WatchesPerSession int // watches of one stream; 100,000
	RequestsInFlight  int // unanswered requests of one stream; 1024, which is also the most
	QueueBytes        int // waiting for one slow stream; 16 MiB
	WritesPerSecond   int // writes of one session; 0: no limit

	Sessions              int // open sessions of the cluster; 0: no limit
	SessionsPerAddress    int // open sessions of one client address; 0: no limit
	Connections           int // TCP connections of clients; 0: no limit
	ConnectionsPerAddress int // of one client address; 0: no limit
	UnaryInFlight         int // calls outside a session being served; 4096
}

// WithDefaults returns l with the defaults in place of zeros.
func (l Limits) WithDefaults() Limits {
	for _, d := range []struct {
		field *int
		value int
	}{
		{&l.NodeBytes, 1 << 20},
		{&l.PathBytes, 4 << 10},
		{&l.FrameBytes, 4 << 20},
		{&l.OpsPerMulti, 4096},
		{&l.ChildrenPerReply, 100_000},
		{&l.WatchesPerSession, 100_000},
		{&l.RequestsInFlight, session.MaxUnacked},
		{&l.QueueBytes, 16 << 20},
		{&l.UnaryInFlight, 4096},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return l
}

// Validate says which limit makes no sense. Call it on what WithDefaults
// returned.
func (l Limits) Validate() error {
	const most = 1 << 30
	for _, f := range []struct {
		name     string
		v, least int
		most     int
	}{
		{settingFrame, l.FrameBytes, 64 << 10, 64 << 20},
		{settingNode, l.NodeBytes, 1, min(l.FrameBytes-1024, fsm.MaxDataBytes)},
		{settingPath, l.PathBytes, 16, min(l.FrameBytes-1024, fsm.MaxPathBytes)},
		{settingOps, l.OpsPerMulti, 1, fsm.MaxOps},
		{"limits.children_per_reply", l.ChildrenPerReply, 1, most},
		{settingWatches, l.WatchesPerSession, 1, most},
		{settingInFlight, l.RequestsInFlight, 1, session.MaxUnacked},
		{settingQueue, l.QueueBytes, 256 << 10, most},
		{"limits.writes_per_second", l.WritesPerSecond, 0, most},
		{settingSessions, l.Sessions, 0, most},
		{settingAddress, l.SessionsPerAddress, 0, most},
		{"limits.connections", l.Connections, 0, most},
		{"limits.connections_per_address", l.ConnectionsPerAddress, 0, most},
		{settingUnaryInFlight, l.UnaryInFlight, 1, most},
	} {
		if f.v < f.least || f.v > f.most {
			return fmt.Errorf("%s: %d is not between %d and %d", f.name, f.v, f.least, f.most)
		}
	}
	return nil
}

// writeLimiter holds one session to its writes per second; nil if there is no
// limit.
func (l *Limits) writeLimiter() *rate.Limiter {
	if l.WritesPerSecond == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(l.WritesPerSecond), max(1, l.WritesPerSecond/10))
}
