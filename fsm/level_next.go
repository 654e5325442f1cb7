//go:build nextlevel

package fsm

// A build with the tag nextlevel is a release that does not exist: it knows one
// level more, at which snapshots have another version and entries another
// outcome. Tests of rolling upgrades run it beside this release.

// FeatureLevel is one above that of this release.
const FeatureLevel = 2

const newestSnapshotVersion = 2

func snapshotVersionAt(level uint32) uint32 { return min(level, 2) }

// clockAt makes every clock odd from level 2 on.
func clockAt(level uint32, clock int64) int64 {
	if level >= 2 {
		clock |= 1
	}
	return clock
}
