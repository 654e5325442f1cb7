//go:build !nextlevel

package fsm

// FeatureLevel is the highest level of behaviour this build knows. Any change
// in the outcome of apply, a fix too, gets a new one and happens only where the
// state has been raised to it.
const FeatureLevel = 1

// newestSnapshotVersion is the newest form of a snapshot that this build reads.
const newestSnapshotVersion = 1

// snapshotVersionAt is the form in which a snapshot of a state at level is
// written. A change of what is written, or of its meaning, gets a new version,
// and a level with it: as long as a server may go back to the release before,
// that one must be able to read what is written.
func snapshotVersionAt(level uint32) uint32 { return min(level, 1) }

// clockAt is the clock of an entry as a state at level takes it.
func clockAt(_ uint32, clock int64) int64 { return clock }
