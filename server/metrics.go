package server

import (
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

// codeSlots is more than the largest code.
const codeSlots = 64

// protocol tells the ports of clients apart in metrics.
type protocol uint8

const (
	protoGRPC protocol = iota
	protoZooKeeper
	numProtocols
)

var protocolTexts = [numProtocols]string{protoGRPC: "grpc", protoZooKeeper: "zookeeper"}

// String is the label in metrics.
func (p protocol) String() string { return protocolTexts[p] }

func protocolOf(p session.Protocol) protocol {
	if p == session.ZooKeeper {
		return protoZooKeeper
	}
	return protoGRPC
}

// requestCounts counts the requests of one protocol.
type requestCounts struct {
	requests  [opNames][codeSlots]atomic.Uint64
	durations [opNames]histogram
}

// metrics counts what the server does. It is safe for concurrent use.
type metrics struct {
	by [numProtocols]requestCounts

	fsync, commit, apply, snapshot histogram
	// watchLag is from the queueing of an event until it is handed to the network.
	watchLag histogram

	throttled struct{ rate, overload, unary atomic.Uint64 }
	refused   atomic.Uint64 // calls refused for want of an admin identity
	panics    atomic.Uint64
	silence   silenceRatio

	slow       time.Duration // 0: none is slow
	slowLog    *slog.Logger
	slowRate   *rate.Limiter
	slowHidden atomic.Uint64
}

func newMetrics(slow time.Duration, log *slog.Logger) *metrics {
	return &metrics{slow: slow, slowLog: log, slowRate: rate.NewLimiter(10, 20)}
}

// done counts an answered request. now is the time on the stopwatch.
func (m *metrics) done(it *item, code fsm.Code, now int64, c *conn) {
	m.count(protoGRPC, it.op, code)
	if it.start == 0 {
		return
	}
	took := time.Duration(now - it.start)
	m.by[protoGRPC].durations[it.op].observe(took)
	if m.slow > 0 && took > m.slow {
		m.slowRequest(it, took, code, c)
	}
}

func (m *metrics) count(p protocol, op opName, code fsm.Code) {
	if code < 0 || int(code) >= codeSlots {
		code = fsm.CodeInternal
	}
	m.by[p].requests[op][code].Add(1)
}

// slowRequest logs a slow request. When many are slow, the few that are logged
// say how many were not.
func (m *metrics) slowRequest(it *item, took time.Duration, code fsm.Code, c *conn) {
	if !m.slowRate.Allow() {
		m.slowHidden.Add(1)
		return
	}
	path := it.path
	if it.result != nil && len(it.result.Ops) > 0 {
		path = it.result.Ops[0].Path
	}
	args := []any{"event", "slow_request", "op", it.op.String(), "path", path, "request", it.id, "took", took, "code", int32(code)}
	if c != nil {
		args = append(args, "session", c.session, "peer", c.guest.address)
	}
	if hidden := m.slowHidden.Swap(0); hidden > 0 {
		args = append(args, "not_logged", hidden)
	}
	m.slowLog.Warn("slow request", args...)
}

// total is the number of requests answered.
func (m *metrics) total() (n uint64) {
	for p := range m.by {
		for op := range m.by[p].requests {
			for code := range m.by[p].requests[op] {
				n += m.by[p].requests[op][code].Load()
			}
		}
	}
	return n
}

// silenceRatio counts, at each heartbeat, which part of its timeout the session
// had been silent for: it shows trouble before sessions expire.
type silenceRatio struct {
	counts   [len(silenceBounds) + 1]atomic.Uint64
	permille atomic.Uint64
}

var silenceBounds = [...]float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}

func (s *silenceRatio) observe(silent, timeout time.Duration) {
	if timeout <= 0 || silent < 0 {
		return
	}
	ratio := float64(silent) / float64(timeout)
	i := 0
	for i < len(silenceBounds) && ratio > silenceBounds[i] {
		i++
	}
	s.counts[i].Add(1)
	s.permille.Add(uint64(ratio * 1000))
}
