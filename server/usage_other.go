//go:build !linux

package server

import (
	rtmetrics "runtime/metrics"
	"time"
)

// ownUsage is what the runtime knows where the kernel cannot be asked.
func ownUsage() usage {
	samples := []rtmetrics.Sample{{Name: "/cpu/classes/total:cpu-seconds"}, {Name: "/memory/classes/total:bytes"}}
	rtmetrics.Read(samples)
	return usage{
		cpu: time.Duration(samples[0].Value.Float64() * float64(time.Second)),
		rss: int64(samples[1].Value.Uint64()),
	}
}
