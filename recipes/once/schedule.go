package once

import "time"

// Schedule says which period is due at a time, and when the next one begins.
// Period names must sort in the order of time, and a period must begin where the
// one before it has named its end. The same schedule on all hosts, with the same
// time zone, makes them agree on the names.
type Schedule = func(now time.Time) (period string, next time.Time)

// Formats of the names of periods: fixed width, so that they sort by time.
const (
	secondsFormat = "2006-01-02T15:04:05Z"
	nanosFormat   = "2006-01-02T15:04:05.000000000Z"
)

// Every makes periods of length d that begin at multiples of d since the year 1
// in UTC: of an hour at each full hour, of a day at midnight UTC. They are named
// by their beginning. A d that is not positive is a bad schedule.
func Every(d time.Duration) Schedule {
	return func(now time.Time) (string, time.Time) {
		if d <= 0 {
			return "", time.Time{}
		}
		begin := now.UTC().Truncate(d)
		format := secondsFormat
		if d%time.Second != 0 {
			format = nanosFormat
		}
		return begin.Format(format), begin.Add(d)
	}
}

// Daily makes a period of each day, which is due at hour:minute in loc (UTC if
// nil) and named by the date there. Where clocks are changed there is still one
// for each date: a time that the change leaves out is moved by the change, and one
// that comes twice counts once. An hour or minute that no clock shows is a bad
// schedule.
func Daily(hour, minute int, loc *time.Location) Schedule {
	if loc == nil {
		loc = time.UTC
	}
	return func(now time.Time) (string, time.Time) {
		if hour < 0 || hour > 23 || minute < 0 || minute > 59 {
			return "", time.Time{}
		}
		y, m, d := now.In(loc).Date()
		due := func(day int) time.Time { return time.Date(y, m, day, hour, minute, 0, 0, loc) }
		day := d
		for due(day).After(now) {
			day--
		}
		for !due(day + 1).After(now) {
			day++
		}
		return time.Date(y, m, day, 0, 0, 0, 0, time.UTC).Format(time.DateOnly), due(day + 1)
	}
}
