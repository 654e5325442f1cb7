//go:build !planted

package planted

// On is whether the bug is switched on: never in this program.
func On(Bug) bool { return false }

// Run does what a bug does to something, if it is switched on: never in this
// program.
func Run(Bug, ...any) {}
