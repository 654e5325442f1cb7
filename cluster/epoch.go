package cluster

import "time"

// EpochAt is the least epoch of a cluster whose past is not known, at a time:
// seconds since 2024. Tokens rise over a total loss as long as there was on
// average less than one election a second.
func EpochAt(t time.Time) uint32 {
	return uint32(min(max(t.Sub(epochZero)/time.Second, 1), 1<<31-1))
}
