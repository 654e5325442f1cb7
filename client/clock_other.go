//go:build !linux

package client

import "time"

// bootTime is the monotonic clock of package time. Whether it goes on while the
// machine sleeps is up to the system.
func bootTime() time.Duration { return sinceStart() }
