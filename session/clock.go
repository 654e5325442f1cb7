package session

import "time"

// ExpiryClock is the clock that silence is measured on. It goes with real time,
// but by at most two ticks for each call: when the process did not run (the
// host was suspended, the machine overloaded, the container frozen), signs of
// life have piled up unread, and to count that time as silence would expire
// everybody at once. The zero value stands at 0.
//
// Whoever tells the age of a sign of life measures it on such a clock too: a
// server that was frozen has not been listening.
type ExpiryClock struct{ now time.Duration }

// Advance moves the clock on by the real time that has passed since the last
// call, but no more than two ticks, and returns what it shows. A negative time
// moves nothing. tick is how often the caller means to call; calling more often
// is harmless.
func (c *ExpiryClock) Advance(elapsed, tick time.Duration) time.Duration {
	c.now += max(0, min(elapsed, 2*tick))
	return c.now
}

// Now is what the clock shows.
func (c *ExpiryClock) Now() time.Duration { return c.now }
