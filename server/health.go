package server

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
)

// leaderService is the health service that only the leader serves, for proxies
// that route writes to it.
const leaderService = "coord.v1.Leader"

// healthEvery is how often readiness is looked at.
const healthEvery = 100 * time.Millisecond

// readiness is what was found last.
type readiness struct {
	ready  bool
	leader bool
	detail string // why not ready
}

// watchHealth keeps the health service up to date.
func (s *Server) watchHealth(ctx context.Context) {
	tick := time.NewTicker(s.cfg.period(healthEvery))
	defer tick.Stop()
	for {
		s.lookAtHealth()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Server) lookAtHealth() {
	st := s.cluster.Status()
	now := &readiness{ready: st.Ready, leader: st.Leading}
	var why []string
	for _, c := range st.Checks {
		if !c.OK {
			why = append(why, c.Name+": "+c.Detail)
		}
	}
	now.detail = strings.Join(why, "; ")
	old := s.ready.Swap(now)
	if old.ready != now.ready {
		s.log.Info("readiness changed", "event", "readiness_changed", "ready", now.ready, "detail", now.detail)
	}
	s.health.SetServingStatus("", serving(now.ready))
	s.health.SetServingStatus(leaderService, serving(now.leader))
}

func serving(yes bool) grpc_health_v1.HealthCheckResponse_ServingStatus {
	if yes {
		return grpc_health_v1.HealthCheckResponse_SERVING
	}
	return grpc_health_v1.HealthCheckResponse_NOT_SERVING
}
