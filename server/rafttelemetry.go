package server

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"

	gometrics "github.com/hashicorp/go-metrics/compat"
	"github.com/prometheus/client_golang/prometheus"
)

// raftTelemetry collects what hashicorp/raft and its stores report, under
// hraft_ and otherwise named as there: gauges, counters, and timings in
// milliseconds as a summary without quantiles (_sum, _count). It implements the
// sink of go-metrics and prometheus.Collector.
//
// The library reports to one sink of the process, so there is one here too.
type raftTelemetry struct {
	mu     sync.Mutex // guards below
	series map[string]*raftSeries
}

// raftSeries is one metric with one set of labels.
type raftSeries struct {
	desc   *prometheus.Desc
	kind   raftKind
	labels []string // values
	value  float64  // gauge, counter; the sum of a summary
	count  uint64
}

type raftKind uint8

const (
	raftGauge raftKind = iota
	raftCounter
	raftSummary
)

// maxRaftSeries bounds the label sets: peers come and go under new names.
const maxRaftSeries = 2000

// installTelemetry makes the library of this process report to the one sink.
var installTelemetry = sync.OnceValue(func() *raftTelemetry {
	t := &raftTelemetry{series: make(map[string]*raftSeries)}
	conf := gometrics.DefaultConfig("hraft")
	conf.EnableHostname = false
	conf.EnableRuntimeMetrics = false
	if _, err := gometrics.NewGlobal(conf, t); err != nil {
		return t // only the host name can fail, and it is off
	}
	return t
})

// SetGauge implements the sink.
func (t *raftTelemetry) SetGauge(key []string, v float32) { t.SetGaugeWithLabels(key, v, nil) }

// SetGaugeWithLabels implements the sink.
func (t *raftTelemetry) SetGaugeWithLabels(key []string, v float32, labels []gometrics.Label) {
	t.record(raftGauge, key, labels, v)
}

// SetPrecisionGauge implements the optional part of the sink.
func (t *raftTelemetry) SetPrecisionGauge(key []string, v float64) {
	t.record(raftGauge, key, nil, float32(v))
}

// SetPrecisionGaugeWithLabels implements the optional part of the sink.
func (t *raftTelemetry) SetPrecisionGaugeWithLabels(key []string, v float64, labels []gometrics.Label) {
	t.record(raftGauge, key, labels, float32(v))
}

// EmitKey implements the sink; nothing uses it.
func (t *raftTelemetry) EmitKey([]string, float32) {}

// IncrCounter implements the sink.
func (t *raftTelemetry) IncrCounter(key []string, v float32) { t.IncrCounterWithLabels(key, v, nil) }

// IncrCounterWithLabels implements the sink.
func (t *raftTelemetry) IncrCounterWithLabels(key []string, v float32, labels []gometrics.Label) {
	t.record(raftCounter, key, labels, v)
}

// AddSample implements the sink.
func (t *raftTelemetry) AddSample(key []string, v float32) { t.AddSampleWithLabels(key, v, nil) }

// AddSampleWithLabels implements the sink.
func (t *raftTelemetry) AddSampleWithLabels(key []string, v float32, labels []gometrics.Label) {
	t.record(raftSummary, key, labels, v)
}

func (t *raftTelemetry) record(kind raftKind, key []string, labels []gometrics.Label, v float32) {
	if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
		return
	}
	id := strings.Join(key, "_")
	for _, l := range labels {
		id += "\x00" + l.Name + "\x00" + l.Value
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.series[id]
	if s == nil {
		if len(t.series) >= maxRaftSeries {
			return
		}
		s = newRaftSeries(kind, key, labels)
		t.series[id] = s
	}
	switch s.kind {
	case raftGauge:
		s.value = float64(v)
	case raftCounter:
		s.value += max(0, float64(v))
	case raftSummary:
		s.value += float64(v)
		s.count++
	}
}

var notInMetricName = regexp.MustCompile(`[^a-zA-Z0-9_]`)

func newRaftSeries(kind raftKind, key []string, labels []gometrics.Label) *raftSeries {
	sorted := slices.SortedFunc(slices.Values(labels), func(a, b gometrics.Label) int { return strings.Compare(a.Name, b.Name) })
	s := &raftSeries{kind: kind}
	var names []string
	for _, l := range sorted {
		names = append(names, notInMetricName.ReplaceAllString(l.Name, "_"))
		s.labels = append(s.labels, l.Value)
	}
	name := notInMetricName.ReplaceAllString(strings.Join(key, "_"), "_")
	if !strings.HasPrefix(name, "hraft_") {
		name = "hraft_" + name
	}
	s.desc = prometheus.NewDesc(name, "Reported by hashicorp/raft as it is; timings in milliseconds.", names, nil)
	return s
}

// Describe implements prometheus.Collector: the names are not known before.
func (t *raftTelemetry) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (t *raftTelemetry) Collect(ch chan<- prometheus.Metric) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.series {
		if m, err := s.metric(); err == nil {
			ch <- m
		}
	}
}

func (s *raftSeries) metric() (prometheus.Metric, error) {
	switch s.kind {
	case raftGauge:
		return prometheus.NewConstMetric(s.desc, prometheus.GaugeValue, s.value, s.labels...)
	case raftCounter:
		return prometheus.NewConstMetric(s.desc, prometheus.CounterValue, s.value, s.labels...)
	case raftSummary:
	}
	return prometheus.NewConstSummary(s.desc, s.count, s.value, nil, s.labels...)
}
