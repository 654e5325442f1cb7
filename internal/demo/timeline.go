package demo

import (
	"fmt"
	"io"
	"time"
)

// timeline prints what happens as it happens, each line with the seconds since
// the start and the actor.
type timeline struct {
	w     io.Writer
	start time.Time
}

func newTimeline(w io.Writer) *timeline { return &timeline{w: w, start: time.Now()} }

func (l *timeline) say(who, format string, args ...any) {
	fmt.Fprintf(l.w, "%6.2f s  %-8s  %s\n", time.Since(l.start).Seconds(), who, fmt.Sprintf(format, args...))
}
