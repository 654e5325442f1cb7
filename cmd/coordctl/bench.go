package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
)

type benchOptions struct {
	workload         string
	clients, depth   int
	duration, warmup time.Duration
	keys, valueSize  int
	readMode         string
	mode             client.ReadMode
	keep             bool
	waiters          []int // lengths of a lock's line
}

const (
	benchCreate = "create"
	benchSet    = "set"
	benchGet    = "get"
	benchMixed  = "mixed"
	benchLock   = "lock"
)

var benchWorkloads = []string{benchCreate, benchSet, benchGet, benchMixed, benchLock}

var readModes = map[string]client.ReadMode{
	"linearizable": client.Linearizable, "session": client.ReadSession, "stale": client.ReadStale,
}

func newBenchCmd(e *env) *cobra.Command {
	o := benchOptions{
		clients: 1, depth: 1, duration: 5 * time.Second, warmup: time.Second,
		keys: 10_000, valueSize: 100, readMode: "linearizable",
	}
	cmd := &cobra.Command{
		Use:   "bench WORKLOAD",
		Short: "Measure the cluster under load",
		Long: `Measure the cluster under load. It writes below a znode of its own, which it
deletes again.

Workloads:
  create   sequential znodes below a parent of each client's own
  set      sets of prepared keys, uniformly at random
  get      reads of them
  mixed    nine gets for a set
  lock     contenders for one fair lock, held for no time; the latency is the
           handover, from the begin of a release until the next holder knows

With --waiters, lock measures the handover in lines of these lengths, one after the
other, each for --duration: the time should be the same, and each release should
wake one waiter. The waiters share up to 1000 sessions over the clients.

Each client is one session; client i uses endpoint i modulo their number. --depth
requests are in flight for each. Latencies run from the call to its answer, in a
closed loop: what a client does not send while it waits is not counted as late.

CPU of the servers comes from their own count, over all servers at the endpoints.
Load, servers and whatever else runs share the machine if they are on one: CPU per
operation says more than operations per second then.`,
		Example: "  coordctl bench set --clients 64 --depth 64\n" +
			"  coordctl bench get --clients 128 --read-mode session --output json >>results.jsonl\n" +
			"  coordctl bench lock --waiters 10,1000,10000 --clients 10",
		Args:      cobra.ExactArgs(1),
		ValidArgs: benchWorkloads,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.workload = args[0]
			if err := o.check(cmd); err != nil {
				return err
			}
			if len(o.waiters) > 0 {
				return e.benchHandovers(cmd.Context(), &o)
			}
			r, err := e.bench(cmd.Context(), &o)
			if err != nil {
				return err
			}
			return e.printBench(r)
		},
	}
	f := cmd.Flags()
	f.IntVarP(&o.clients, "clients", "c", o.clients, "sessions")
	f.IntVarP(&o.depth, "depth", "d", o.depth, "requests in flight for each client")
	f.DurationVarP(&o.duration, "duration", "t", o.duration, "how long to measure")
	f.DurationVar(&o.warmup, "warmup", o.warmup, "load before measuring")
	f.IntVar(&o.keys, "keys", o.keys, "prepared znodes for set, get and mixed")
	f.IntVar(&o.valueSize, "value-size", o.valueSize, "bytes of data in each znode")
	f.StringVar(&o.readMode, "read-mode", o.readMode, "linearizable, session or stale")
	f.IntSliceVar(&o.waiters, "waiters", nil, "for lock: lengths of the line to measure, as 10,1000,10000")
	f.BoolVar(&o.keep, "keep", false, "leave the znodes of the run")
	return cmd
}

const (
	maxBenchClients = 100_000
	maxBenchDepth   = 1000 // as many writes of a session may be unanswered
)

func (o *benchOptions) check(cmd *cobra.Command) error {
	mode, ok := readModes[o.readMode]
	o.mode = mode
	switch {
	case !slices.Contains(benchWorkloads, o.workload):
		return usagef("bench: %q is none of %s", o.workload, strings.Join(benchWorkloads, ", "))
	case !ok:
		return usagef("--read-mode: %q is none of linearizable, session, stale", o.readMode)
	case o.clients < 1 || o.clients > maxBenchClients:
		return usagef("--clients: %d is not from 1 to %d", o.clients, maxBenchClients)
	case o.depth < 1 || o.depth > maxBenchDepth:
		return usagef("--depth: %d is not from 1 to %d", o.depth, maxBenchDepth)
	case o.workload == benchLock && cmd.Flags().Changed("depth") && o.depth != 1:
		return usagef("bench lock has a depth of 1")
	case o.duration <= 0 || o.warmup < 0:
		return usagef("--duration must be above zero, --warmup not below")
	case o.keys < 1 || o.valueSize < 0:
		return usagef("--keys must be above zero, --value-size not below")
	}
	return o.checkWaiters()
}

// benchResult is one measured point.
type benchResult struct {
	Workload     string  `json:"workload"`
	Clients      int     `json:"clients"`
	Depth        int     `json:"depth"`
	Keys         int     `json:"keys,omitempty"`
	ValueSize    int     `json:"valueSize"`
	ReadMode     string  `json:"readMode,omitempty"`
	Seconds      float64 `json:"seconds"`
	Ops          uint64  `json:"ops"`
	OpsPerSecond float64 `json:"opsPerSecond"`
	Errors       uint64  `json:"errors"`
	FirstError   string  `json:"firstError,omitempty"`
	P50Ms        float64 `json:"p50Ms"`
	P99Ms        float64 `json:"p99Ms"`
	P999Ms       float64 `json:"p999Ms"`
	MaxMs        float64 `json:"maxMs"`
	// ServerCPU and ClientCPU are in microseconds of user and system time for
	// each operation; the servers' is that of all of them together.
	ServerCPU float64 `json:"serverCpuUsPerOp"`
	ClientCPU float64 `json:"clientCpuUsPerOp"`
	// ServerCores is how many processors the servers kept busy.
	ServerCores float64 `json:"serverCores"`
	// RSS is the memory of each server at the end.
	RSS map[string]int64 `json:"serverRssBytes"`
	// OpsPerEntry is how many transactions shared an entry of the log.
	OpsPerEntry float64 `json:"transactionsPerLogEntry,omitempty"`
	Version     string  `json:"version"`
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (r *benchResult) latencies(h *histogram) {
	r.P50Ms, r.P99Ms, r.P999Ms, r.MaxMs = ms(h.quantile(.5)), ms(h.quantile(.99)), ms(h.quantile(.999)), ms(h.max)
}

// printBench prints a line of JSON, so that points can be appended to a file.
func (e *env) printBench(r *benchResult) error {
	if e.isJSON() {
		return e.line("BenchResult", r)
	}
	t := table{header: []string{
		"WORKLOAD", "CLIENTS", "DEPTH", "OPS/S", "P50 ms", "P99 ms", "P99.9 ms", "MAX ms", "ERRORS", "SERVER CPU us/op", "CLIENT CPU us/op", "RSS",
	}}
	t.rows = [][]string{{
		r.Workload, fmt.Sprint(r.Clients), fmt.Sprint(r.Depth), fmt.Sprintf("%.0f", r.OpsPerSecond),
		fmt.Sprintf("%.2f", r.P50Ms), fmt.Sprintf("%.2f", r.P99Ms), fmt.Sprintf("%.2f", r.P999Ms), fmt.Sprintf("%.2f", r.MaxMs),
		fmt.Sprint(r.Errors), fmt.Sprintf("%.1f", r.ServerCPU), fmt.Sprintf("%.1f", r.ClientCPU), rssText(r.RSS),
	}}
	if err := e.printTable(t); err != nil {
		return err
	}
	if r.FirstError != "" {
		_, err := io.WriteString(e.stdout, "first error: "+r.FirstError+"\n")
		return err
	}
	return nil
}

func rssText(rss map[string]int64) string {
	var all []int64
	for _, n := range rss {
		all = append(all, n)
	}
	if len(all) == 0 {
		return "-"
	}
	lo, hi := slices.Min(all), slices.Max(all)
	if size(lo) == size(hi) {
		return size(hi)
	}
	return size(lo) + "-" + size(hi)
}

// bench prepares, loads, measures and tidies up.
func (e *env) bench(ctx context.Context, o *benchOptions) (*benchResult, error) {
	b, err := e.newBench(ctx, o)
	if err != nil {
		return nil, err
	}
	r, err := b.run(ctx)
	return r, joinClose(err, b.close(ctx))
}
