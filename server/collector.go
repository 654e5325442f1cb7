package server

import (
	"math"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/internal/buildinfo"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/watch"
	"github.com/coordd/coord/znode"
)

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
	for p, l := range s.listeners() {
		out.gauge("coord_connections", "Open client connections.", float64(l.count()), "protocol", p.String())
		out.counter("coord_connections_refused_total", "Client connections closed at once because of a limit.", l.refused.Load(), "protocol", p.String())
	}
	out.counter("coord_internal_errors_total", "Errors that should not be. Their text is in the log.", s.faults.n.Load())
	out.counter("coord_panics_total", "Panics that ended one request or stream.", s.metrics.panics.Load())
	out.add(prometheus.CounterValue, "coord_process_stall_seconds_total", "Time in which this process should have run and did not.", s.stalls.seconds(), nil)
	c.collectTLS(out)
}

// collectTLS says when the certificate ends. Without one there is nothing that
// ends, so an alert on the time that is left stays silent.
func (c collector) collectTLS(out collection) {
	expiry, failures := math.Inf(1), uint64(0)
	if t := c.s.tls; t != nil {
		expiry, failures = float64(t.Expiry().Unix()), t.Failures()
	}
	for _, listener := range []string{"grpc", "http", "peer"} {
		out.gauge("coord_tls_certificate_expiry_timestamp_seconds", "When the certificate in use ends, in seconds since 1970; +Inf without TLS.",
			expiry, "listener", listener)
	}
	out.counter("coord_tls_reload_failures_total", "New certificate files that were refused.", failures)
}

func (c collector) collectRequests(out collection) {
	m := c.s.metrics
	for p := range m.by {
		collectCounts(out, &m.by[p], protocol(p))
	}
	flight := [numProtocols]int64{protoGRPC: c.s.unary.Load()}
	for _, st := range c.s.hub.streams() {
		switch own := st.(type) {
		case *conn:
			flight[protoGRPC] += own.unsent.Load()
		case *zkConn:
			flight[protoZooKeeper] += int64(own.waiting())
		}
	}
	for p, n := range flight {
		out.gauge("coord_requests_in_flight", "Requests that are unanswered.", float64(n), "protocol", protocol(p).String())
	}
	const throttled = "coord_throttled_requests_total"
	const throttledHelp = "Requests that were held back or refused because of a limit."
	out.counter(throttled, throttledHelp, m.throttled.rate.Load(), "reason", "writes_per_second")
	out.counter(throttled, throttledHelp, m.throttled.overload.Load(), "reason", "overload")
	out.counter(throttled, throttledHelp, m.throttled.unary.Load(), "reason", "unary_in_flight")
	out.counter("coord_admin_refused_total", "Admin calls refused for want of an admin identity.", m.refused.Load())
}

func collectCounts(out collection, m *requestCounts, p protocol) {
	for op := opName(0); op < opNames; op++ {
		seen := false
		for code := range m.requests[op] {
			if n := m.requests[op][code].Load(); n > 0 {
				seen = true
				out.counter("coord_requests_total", "Requests answered.", n,
					"protocol", p.String(), "op", op.String(), "code", coordpb.Code(code).String())
			}
		}
		if seen {
			out.histogram("coord_request_duration_seconds", "From the arrival of a request until its answer is sent.", &m.durations[op],
				"protocol", p.String(), "op", op.String())
		}
	}
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
	for t := coordpb.EventType_EVENT_UNSPECIFIED + 1; int(t) < len(h.events); t++ {
		out.counter("coord_watch_events_total", "Events queued for clients.", h.events[t].Load(), "type", t.String())
	}
	out.histogram("coord_watch_lag_seconds", "From the moment an event is queued, at the apply of its transaction, until it is handed to the network.", &c.s.metrics.watchLag)
	out.counter("coord_slow_consumers_total", "Streams ended because their client did not read.", h.slow.Load())
}

func (c collector) collectSessions(out collection) {
	h := c.s.hub
	var open, attached [numProtocols]int
	c.s.machine.View(func(v *fsm.View) {
		for s := range v.Sessions.All() {
			open[protocolOf(s.Protocol)]++
			if s.Server == c.s.serverID {
				attached[protocolOf(s.Protocol)]++
			}
		}
	})
	for p := range open {
		const help = "Sessions: open in the cluster, and those whose connection is, or was last, at this server."
		out.gauge("coord_sessions", help, float64(open[p]), "protocol", protocol(p).String(), "state", "open")
		out.gauge("coord_sessions", help, float64(attached[p]), "protocol", protocol(p).String(), "state", "attached")
	}
	for p := range h.opened {
		label := protocol(p).String()
		out.counter("coord_sessions_opened_total", "Sessions opened in the cluster, as applied here.", h.opened[p].Load(), "protocol", label)
		for r := session.Closed; r <= session.Restored; r++ {
			out.counter("coord_sessions_closed_total", "Sessions that ended in the cluster, as applied here.", h.closed[p][r].Load(),
				"protocol", label, "reason", r.String())
		}
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
