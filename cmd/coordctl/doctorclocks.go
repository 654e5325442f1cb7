package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Differences between the clocks of two servers from which on the doctor speaks.
// Elections, sessions, locks and reads need no common time. What does: a znode's
// TTL, which a new leader counts on by the median of the servers' clocks;
// certificates, which are valid from and until a time of day; and times in logs.
const (
	clocksNotice  = time.Second
	clocksProblem = time.Minute
)

// clockReading is what a server's clock was ahead of this machine's, at most wrong
// by within.
type clockReading struct {
	server        string
	ahead, within time.Duration
}

// readClock judges by the answer of one server; false if it did not say its time.
// The server looked at its clock some time between question and answer.
func readClock(s *serverStatus) (clockReading, bool) {
	if s.err != nil || s.reply.GetClockUs() == 0 {
		return clockReading{}, false
	}
	within := s.answered.Sub(s.asked) / 2 // on the monotonic clock
	middle := s.asked.Add(within)
	return clockReading{s.reply.GetServer(), time.UnixMicro(s.reply.GetClockUs()).Sub(middle), within}, true
}

// clocks compares the clocks of the servers that were asked themselves.
func (x *examination) clocks(st *clusterStatus, all []serverStatus) {
	var read []clockReading
	for i := range all {
		if c, ok := readClock(&all[i]); ok && !slices.ContainsFunc(read, func(o clockReading) bool { return o.server == c.server }) {
			read = append(read, c)
		}
	}
	x.unsure[checkClocks] = len(read) < max(len(st.Servers), 1) // a clock that was not read is not called well
	if len(read) < 2 {
		return
	}
	byAhead := func(a, b clockReading) int { return cmp.Compare(a.ahead, b.ahead) }
	slow, fast := slices.MinFunc(read, byAhead), slices.MaxFunc(read, byAhead)
	apart, within := fast.ahead-slow.ahead, fast.within+slow.within
	text := fmt.Sprintf("the clock of %s is %s ahead of that of %s, give or take %s: TTLs, certificates and the times in logs depend on them, nothing else does",
		fast.server, roundClock(apart), slow.server, roundClock(within))
	const try = "chronyc tracking, on each server"
	switch {
	case apart-within >= clocksProblem:
		x.problem(checkClocks, try, "%s", text)
	case apart-within >= clocksNotice:
		x.notice(checkClocks, try, "%s", text)
	case apart+within >= clocksNotice: // the answers took too long to tell
		x.unsure[checkClocks] = true
	default:
		x.details[checkClocks] = fmt.Sprintf("%s apart at most", roundClock(apart+within))
	}
}

func roundClock(d time.Duration) time.Duration {
	if d >= time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return max(d.Round(time.Millisecond), time.Millisecond)
}
