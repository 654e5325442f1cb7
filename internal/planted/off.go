//go:build !planted

package planted

// On is whether the bug is switched on: never in this program.
func On(Bug) bool { return false }
