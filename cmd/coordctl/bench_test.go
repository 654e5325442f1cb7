package main

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// Each workload measures something, names all servers, and leaves nothing.
func TestBenchSmoke(t *testing.T) {
	c := ownCluster(t, 3)
	before := ctl(t, "", "-e", c.Target(), "ls", "/").stdout
	for _, line := range []string{
		"create --clients 3 --depth 4", "set --clients 4 --depth 8", "get --clients 2 --read-mode session",
		"get --clients 2 --depth 4", "mixed --clients 4 --depth 4", "lock --clients 4",
	} {
		t.Run(line, func(t *testing.T) {
			args := append([]string{"-e", c.Target(), "bench"}, strings.Fields(line)...)
			var b benchResult
			// On a busy machine nothing may come to its end in so short a time.
			for d := 200 * time.Millisecond; b.Ops == 0 && d < 10*time.Second; d *= 4 {
				r := ctl(t, "", append(args, "--duration", d.String(), "--warmup", "50ms", "--keys", "300", "-o", "json")...)
				if r.code != exitOK || strings.Count(r.stdout, "\n") != 1 {
					t.Fatalf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
				}
				survivesRoughly(t, r.stdout)
				b = benchResult{}
				if err := json.Unmarshal([]byte(r.stdout), &b); err != nil {
					t.Fatal(err)
				}
			}
			if b.Errors != 0 || b.Ops == 0 || b.OpsPerSecond <= 0 || b.P50Ms <= 0 || b.P50Ms > b.P99Ms || b.P99Ms > b.P999Ms || b.P999Ms > b.MaxMs {
				t.Errorf("implausible: %+v", b)
			}
			if len(b.RSS) != 3 || b.ServerCPU < 0 || b.ClientCPU <= 0 {
				t.Errorf("usage: %+v", b)
			}
			if want := strings.Fields(line)[0]; b.Workload != want || b.Seconds < 0.2 {
				t.Errorf("point: %+v", b)
			}
		})
	}
	if after := ctl(t, "", "-e", c.Target(), "ls", "/").stdout; after != before {
		t.Errorf("left behind:\n%s", after)
	}
	ctl(t, "", "-e", c.Endpoints()[0], "bench", "set", "--duration", "50ms", "--warmup", "0s", "--keys", "10", "--keep").
		want(t, exitOK, "~WORKLOAD  CLIENTS  DEPTH  OPS/S", "coordctl: the endpoints name 1 of 3 servers: their CPU and memory is all that is counted\n")
	ctl(t, "", "-e", c.Target(), "ls", "/").want(t, exitOK, "~coordctl-bench-", "")
}

// survivesRoughly checks that no number is too large for floating point.
func survivesRoughly(t *testing.T, text string) {
	t.Helper()
	var v any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	eachNumber(v, func(n json.Number) {
		if f, err := n.Float64(); err != nil || f > 1<<53 {
			t.Errorf("number %s: %v", n, err)
		}
	})
}

// A run that is interrupted tidies up.
func TestInterruptedBenchTidiesUp(t *testing.T) {
	t.Parallel()
	p := start(t, sharedCluster(t), nil, "bench", "mixed", "--duration", "1m", "--keys", "100", "--clients", "4")
	root := ""
	eventually(t, "the run has begun", func() bool {
		for name := range strings.Lines(must(t, "ls", "/")) {
			if name = strings.TrimSpace(name); strings.HasPrefix(name, "coordctl-bench-") {
				root = "/" + name
			}
		}
		return root != ""
	})
	if err := p.cmd.Process.Signal(interrupt); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != exitInterrupted {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	on(t, "", "stat", root).want(t, exitNotFound, "", "~no such node")
}

// A quantile is off by less than 2 %, over the whole range of durations.
func TestHistogramIsAccurate(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h, a, b histogram
	var all []time.Duration
	for i := range 20_000 {
		d := time.Duration(1 + rng.Int64N(1<<rng.IntN(42)))
		all = append(all, d)
		h.add(d)
		if i%2 == 0 {
			a.add(d)
		} else {
			b.add(d)
		}
	}
	slices.Sort(all)
	for _, q := range []float64{0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[max(int(q*float64(len(all))+0.5), 1)-1]
		if got := h.quantile(q); got < want || float64(got) > float64(want)*1.02 {
			t.Errorf("quantile %v: %d, want %d", q, got, want)
		}
	}
	a.merge(&b)
	if a.quantile(.5) != h.quantile(.5) || a.n != h.n || a.max != h.max {
		t.Error("two halves merged differ from the whole")
	}
	var empty histogram
	if empty.quantile(.5) != 0 {
		t.Error("an empty histogram has a median")
	}
}

// Each value lies in its bucket, and buckets are narrow.
func TestHistogramBuckets(t *testing.T) {
	for _, v := range []uint64{0, 1, 63, 64, 127, 128, 129, 1000, 1 << 20, 1<<20 + 1, 1<<40 - 1, 1 << 62, 1<<63 - 1} {
		i := bucket(v)
		hi := top(i)
		lo := uint64(0)
		if i > 0 {
			lo = top(i-1) + 1
		}
		if v < lo || v > hi {
			t.Errorf("%d is not in bucket %d [%d, %d]", v, i, lo, hi)
		}
		if width := hi - lo + 1; v >= 128 && float64(width) > float64(lo)*0.02 {
			t.Errorf("bucket %d [%d, %d] is too wide", i, lo, hi)
		}
	}
}
