package client

import "time"

var processStart = time.Now()

// sinceStart measures time on the monotonic clock of package time.
func sinceStart() time.Duration { return time.Since(processStart) }
