//go:build planted

package planted

import "sync/atomic"

var present atomic.Pointer[Bug]

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
