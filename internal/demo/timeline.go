package demo

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// timeline prints what happens as it happens, each line with the seconds since
// the start and the actor. It is safe for concurrent use.
type timeline struct {
	mu    sync.Mutex // guards what follows
	w     io.Writer
	start time.Time
	scale float64 // seconds of the story in one second
}

func newTimeline(w io.Writer) *timeline { return &timeline{w: w, start: time.Now(), scale: 1} }

func (l *timeline) say(who, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seconds := time.Since(l.start).Seconds() * l.scale
	fmt.Fprintf(l.w, "%6.2f s  %-8s  %s\n", seconds, who, fmt.Sprintf(format, args...))
}

// restart begins to count at zero again, so that one second is scale seconds of
// the story that is told.
func (l *timeline) restart(scale float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start, l.scale = time.Now(), scale
}

// until waits until the story has come to a moment.
func (l *timeline) until(story time.Duration) {
	l.mu.Lock()
	at := l.start.Add(time.Duration(float64(story) / l.scale))
	l.mu.Unlock()
	time.Sleep(time.Until(at))
}
