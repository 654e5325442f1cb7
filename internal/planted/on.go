//go:build planted

package planted

import "sync/atomic"

var (
	present atomic.Pointer[Bug]
	actions = map[Bug]func(args ...any){} // written before main runs
)

// Register says what a bug does where it needs more than a condition. It is called
// by the init functions of the packages that have such places.
func Register(b Bug, action func(args ...any)) { actions[b] = action }

// Run does what a bug does to something, if it is switched on.
func Run(b Bug, args ...any) {
	if On(b) {
		actions[b](args...)
	}
}

// On is whether the bug is switched on.
func On(b Bug) bool {
	p := present.Load()
	return p != nil && *p == b
}

// Plant switches a bug on, and all others off, until the function that it returns
// is called. One test at a time may do so.
func Plant(b Bug) (remove func()) {
	present.Store(&b)
	return func() { present.Store(nil) }
}
