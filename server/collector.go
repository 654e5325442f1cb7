package server

import (
	"context"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/internal/buildinfo"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/watch"
	"github.com/coordd/coord/znode"
)

// protocolLabel is the value of the protocol label for what this package counts.
const protocolLabel = "grpc"

// registry has the metrics of this server, the process and the Raft library.
func (s *Server) registry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collector{s},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		installTelemetry(),
	)
	return reg
}

// collector reads the server's counters when Prometheus asks. Names and labels
// never depend on data: no path, no session.
type collector struct{ s *Server }

// Describe implements prometheus.Collector. It describes nothing: what is
// collected follows from the server's state.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	out := collection{ch}
	c.collectProcess(out)
	c.collectRaft(out)
	c.collectRequests(out)
	c.collectState(out)
	c.collectSessions(out)
}

// collection takes metrics one by one.
type collection struct{ ch chan<- prometheus.Metric }

func (c collection) gauge(name, help string, v float64, labels ...string) {
	c.add(prometheus.GaugeValue, name, help, v, labels)
}

func (c collection) counter(name, help string, v uint64, labels ...string) {
	c.add(prometheus.CounterValue, name, help, float64(v), labels)
}

// add takes labels as name, value, name, value.
func (c collection) add(kind prometheus.ValueType, name, help string, v float64, labels []string) {
	names, values := pairs(labels)
	c.ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, v, values...)
}

func (c collection) histogram(name, help string, h *histogram, labels ...string) {
	names, values := pairs(labels)
	c.ch <- h.metric(prometheus.NewDesc(name, help, names, nil), values...)
}

func pairs(labels []string) (names, values []string) {
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	return names, values
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (c collector) collectProcess(out collection) {
	s := c.s
	out.gauge("coord_build_info", "Always 1; the labels say which build this is.", 1,
		"version", s.cfg.Version, "revision", buildinfo.Revision(), "goversion", runtime.Version())
	out.gauge("coord_start_time_seconds", "When the server was started, in seconds since 1970.", float64(s.started.UnixMilli())/1000)
	out.gauge("coord_connections", "Open client connections.", float64(s.grpcListener.count()), "protocol", protocolLabel)
	out.counter("coord_connections_refused_total", "Client connections closed at once because of a limit.", s.grpcListener.refused.Load(), "protocol", protocolLabel)
	out.counter("coord_internal_errors_total", "Errors that should not be. Their text is in the log.", s.faults.n.Load())
	out.counter("coord_panics_total", "Panics that ended one request or stream.", s.metrics.panics.Load())
	if s.tls == nil {
		return
	}
	for _, listener := range []string{"grpc", "http", "peer"} {
		out.gauge("coord_tls_certificate_expiry_timestamp_seconds", "When the certificate in use ends, in seconds since 1970.",
			float64(s.tls.Expiry().Unix()), "listener", listener)
	}
	out.counter("coord_tls_reload_failures_total", "New certificate files that were refused.", s.tls.Failures())
}

func (c collector) collectRaft(out collection) {
	s, st := c.s, c.s.cluster.Status()
	out.gauge("coord_raft_is_leader", "1 if this server leads.", truth(st.Leading))
	out.gauge("coord_raft_has_leader", "1 if this server knows a leader.", truth(st.Leader != ""))
	out.gauge("coord_raft_term", "Raft's term.", float64(st.Term))
	out.counter("coord_raft_leader_changes_total", "Leaderships that began since the start of the server.", s.hub.leaders.Load())
	out.gauge("coord_raft_last_index", "Index of the last entry in the log.", float64(st.LastIndex))
	out.gauge("coord_raft_commit_index", "Index of the last entry known to be committed.", float64(st.CommitIndex))
	out.gauge("coord_raft_applied_index", "Index of the last entry applied.", float64(st.AppliedIndex))
	out.gauge("coord_stale_age_seconds", "Time since this server knew to have everything that was committed.", st.StaleAge.Seconds())
	out.gauge("coord_ready", "1 if clients should come here.", truth(st.Ready))
	out.histogram("coord_raft_fsync_duration_seconds", "One append to the log, with its flush to the disk.", &s.metrics.fsync)
	out.histogram("coord_raft_commit_duration_seconds", "A batch at the leader, from the seal until it is applied.", &s.metrics.commit)
	out.histogram("coord_raft_apply_duration_seconds", "One log entry at the state machine.", &s.metrics.apply)
	out.gauge("coord_proposals_pending", "Proposals of this server that are unanswered.", float64(st.Pending))
	counts := s.cluster.Counters()
	out.counter("coord_proposals_total", "Proposals that entered the cluster here.", counts.Proposals)
	out.counter("coord_raft_entries_applied_total", "Log entries applied.", counts.Entries)
	out.counter("coord_transactions_total", "Transactions applied.", counts.Transactions)
	out.counter("coord_deduplicated_requests_total", "Requests that had been done before and were answered from memory.", counts.Repeated+s.hub.deduplicated.Load())
	out.counter("coord_raft_snapshots_total", "Snapshots written.", counts.Snapshots)
	if st.Leading {
		c.collectPeers(out)
	}
}

// collectPeers counts the members, at the leader, which knows them.
func (c collector) collectPeers(out collection) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	counts := map[[2]string]float64{}
	for _, m := range c.s.cluster.Members(ctx).Members {
		suffrage, state := "voter", "in_contact"
		if m.Role != cluster.RoleLeader && m.Role != cluster.RoleVoter {
			suffrage = "nonvoter"
		}
		if !m.InContact {
			state = "lost"
		}
		if m.Role == cluster.RoleMissing {
			state = "missing"
		}
		counts[[2]string{suffrage, state}]++
	}
	for k, n := range counts {
		out.gauge("coord_raft_peers", "Servers of the cluster, as the leader sees them.", n, "suffrage", k[0], "state", k[1])
	}
}

func (c collector) collectRequests(out collection) {
	m := c.s.metrics
	for op := opName(0); op < opNames; op++ {
		seen := false
		for code := range m.requests[op] {
			if n := m.requests[op][code].Load(); n > 0 {
				seen = true
				out.counter("coord_requests_total", "Requests answered.", n,
					"protocol", protocolLabel, "op", op.String(), "code", coordpb.Code(code).String())
			}
		}
		if seen {
			out.histogram("coord_request_duration_seconds", "From the arrival of a request until its answer is sent.", &m.durations[op],
				"protocol", protocolLabel, "op", op.String())
		}
	}
	flight := c.s.unary.Load()
	for _, conn := range c.s.hub.streams() {
		flight += conn.unsent.Load()
	}
	out.gauge("coord_requests_in_flight", "Requests that are unanswered.", float64(flight), "protocol", protocolLabel)
	const throttled = "coord_throttled_requests_total"
	const throttledHelp = "Requests that were held back or refused because of a limit."
	out.counter(throttled, throttledHelp, m.throttled.rate.Load(), "reason", "writes_per_second")
	out.counter(throttled, throttledHelp, m.throttled.overload.Load(), "reason", "overload")
	out.counter(throttled, throttledHelp, m.throttled.unary.Load(), "reason", "unary_in_flight")
	out.counter("coord_admin_refused_total", "Admin calls refused for want of an admin identity.", m.refused.Load())
}

func (c collector) collectState(out collection) {
	h := c.s.hub
	var counts znode.Counts
	z := c.s.machine.Zxid()
	c.s.machine.View(func(v *fsm.View) { counts = v.Tree.Counts() })
	for kind, n := range counts.Kinds {
		out.gauge("coord_znodes", "Znodes.", float64(n), "type", znode.Kind(kind).String())
	}
	out.gauge("coord_data_bytes", "Data of all znodes.", float64(counts.DataBytes))
	out.gauge("coord_zxid_epoch", "Epoch of the last transaction.", float64(z.Epoch()))
	out.gauge("coord_zxid_counter", "Counter of the last transaction within its epoch.", float64(z.Counter()))
	for k, n := range h.watchCounts() {
		out.gauge("coord_watches", "Watches set at this server.", float64(n), "kind", watch.Kind(k).String())
	}
	for t := range h.events {
		if n := h.events[t].Load(); n > 0 {
			out.counter("coord_watch_events_total", "Events queued for clients.", n, "type", coordpb.EventType(t).String())
		}
	}
	out.counter("coord_slow_consumers_total", "Streams ended because their client did not read.", h.slow.Load())
}

func (c collector) collectSessions(out collection) {
	h := c.s.hub
	var open int
	c.s.machine.View(func(v *fsm.View) { open = v.Sessions.Len() })
	out.gauge("coord_sessions", "Sessions: open in the cluster, and attached to this server.", float64(open), "protocol", protocolLabel, "state", "open")
	out.gauge("coord_sessions", "Sessions: open in the cluster, and attached to this server.", float64(h.attached.Load()), "protocol", protocolLabel, "state", "attached")
	out.counter("coord_sessions_opened_total", "Sessions opened in the cluster, as applied here.", h.opened.Load(), "protocol", protocolLabel)
	for r := session.Closed; r <= session.Restored; r++ {
		out.counter("coord_sessions_closed_total", "Sessions that ended in the cluster, as applied here.", h.closed[r].Load(),
			"protocol", protocolLabel, "reason", r.String())
	}
	c.s.metrics.silence.collect(out)
}

// collect gives the ratio as a histogram.
func (s *silenceRatio) collect(out collection) {
	buckets := make(map[float64]uint64, len(silenceBounds))
	var total uint64
	for i, b := range silenceBounds {
		total += s.counts[i].Load()
		buckets[b] = total
	}
	total += s.counts[len(silenceBounds)].Load()
	desc := prometheus.NewDesc("coord_session_silence_ratio", "Silence of a session before each heartbeat, as a part of its timeout.", nil, nil)
	out.ch <- prometheus.MustNewConstHistogram(desc, total, float64(s.permille.Load())/1000, buckets)
}
