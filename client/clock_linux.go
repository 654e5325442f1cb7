package client

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is the time since the machine was started, sleep included: the
// monotonic clock of package time stands still while a laptop or a virtual
// machine sleeps, and a session does not.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return sinceStart()
	}
	return time.Duration(ts.Nano())
}
