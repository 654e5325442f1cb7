package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/buildinfo"
	"github.com/coordd/coord/recipes/lock"
)

const (
	maxBenchWaiters = 100_000
	// benchSessions is how many sessions waiters share at most.
	benchSessions = 1000
	// benchJoins is how many waiters join the line at a time.
	benchJoins = 500
)

// benchHandover is one measured length of a lock's line.
type benchHandover struct {
	Workload string  `json:"workload"`
	Waiters  int     `json:"waiters"`
	Sessions int     `json:"sessions"`
	Releases uint64  `json:"releases"`
	P50Ms    float64 `json:"p50Ms"`
	P99Ms    float64 `json:"p99Ms"`
	MaxMs    float64 `json:"maxMs"`
	// WakeUps is how many events the servers sent for each release: 1 is for the
	// waiter whose turn it is. Others that use the cluster are counted as well.
	WakeUps float64 `json:"wakeUpsPerRelease"`
	// OfFirst is the p50 as a multiple of that of the first length.
	OfFirst float64 `json:"p50OfFirst"`
	Version string  `json:"version"`
}

// lockLine is a line of so many waiters that is kept at its length.
type lockLine struct {
	*bench
	path     string
	sessions []*client.Session
	granted  chan *lock.Handle
	failed   chan error
	joined   int // ever
	in       int // that stand in line or hold
	wg       sync.WaitGroup
}

// benchHandovers measures each length after the other.
func (e *env) benchHandovers(ctx context.Context, o *benchOptions) error {
	b, err := e.newBench(ctx, o)
	if err != nil {
		return err
	}
	points := make([]*benchHandover, 0, len(o.waiters))
	for i, n := range o.waiters {
		p, failed := b.handovers(ctx, fmt.Sprintf("%s/line-%d", b.root, i), n)
		if err = failed; err != nil {
			break
		}
		points = append(points, p)
		p.OfFirst = 1
		if points[0].P50Ms > 0 {
			p.OfFirst = math.Round(p.P50Ms/points[0].P50Ms*100) / 100
		}
	}
	if err := joinClose(err, b.close(ctx)); err != nil {
		return err
	}
	return e.printHandovers(points)
}

func (e *env) printHandovers(points []*benchHandover) error {
	if e.isJSON() {
		for _, p := range points {
			if err := e.line("BenchHandover", p); err != nil {
				return err
			}
		}
		return nil
	}
	t := table{header: []string{"WAITERS", "RELEASES", "P50 ms", "P99 ms", "MAX ms", "OF THE FIRST", "WAKE-UPS/RELEASE"}}
	for _, p := range points {
		t.rows = append(t.rows, []string{
			fmt.Sprint(p.Waiters), fmt.Sprint(p.Releases), fmt.Sprintf("%.2f", p.P50Ms), fmt.Sprintf("%.2f", p.P99Ms),
			fmt.Sprintf("%.2f", p.MaxMs), fmt.Sprintf("%.2f", p.OfFirst), fmt.Sprintf("%.2f", p.WakeUps),
		})
	}
	if err := e.printTable(t); err != nil || len(points) < 2 {
		return err
	}
	last := points[len(points)-1]
	_, err := fmt.Fprintf(e.stdout, "p50 with %d waiters is %.2f times that with %d\n", last.Waiters, last.OfFirst, points[0].Waiters)
	return err
}

// handovers measures one length, for --duration.
func (b *bench) handovers(ctx context.Context, path string, waiters int) (*benchHandover, error) {
	ctx, cancel := context.WithCancel(ctx)
	l := &lockLine{bench: b, path: path, granted: make(chan *lock.Handle, 1), failed: make(chan error, 1)}
	defer l.wg.Wait()
	defer cancel()
	if err := l.fill(ctx, waiters); err != nil {
		return nil, err
	}
	holder, err := l.next(ctx)
	if err != nil {
		return nil, err
	}
	var t histogram
	var wakeUps uint64
	for began := time.Now(); time.Since(began) < b.options.duration; {
		before, err := l.quiet(ctx)
		if err != nil {
			return nil, err
		}
		released := time.Now()
		if err := holder.Release(ctx); err != nil {
			return nil, err
		}
		if holder, err = l.next(ctx); err != nil {
			return nil, err
		}
		t.add(time.Since(released))
		after, err := l.events(ctx)
		if err != nil {
			return nil, err
		}
		wakeUps += after - before
		l.in--
		if err := l.join(ctx, 1); err != nil {
			return nil, err
		}
	}
	p := &benchHandover{
		Workload: benchLock, Waiters: waiters, Sessions: len(l.sessions), Releases: t.n, Version: buildinfo.Version,
		P50Ms: ms(t.quantile(.5)), P99Ms: ms(t.quantile(.99)), MaxMs: ms(t.max),
	}
	if t.n > 0 {
		p.WakeUps = math.Round(float64(wakeUps)/float64(t.n)*100) / 100
	}
	return p, nil
}

// fill makes the sessions and has a holder and the waiters join.
func (l *lockLine) fill(ctx context.Context, waiters int) error {
	l.sessions = make([]*client.Session, min(waiters+1, benchSessions))
	err := parallel(len(l.sessions), benchDials, func(i int) (err error) {
		l.sessions[i], err = l.clients[i%len(l.clients)].NewSession(ctx, client.WithSessionTimeout(benchSession))
		return err
	})
	for err == nil && l.in <= waiters {
		err = l.join(ctx, min(benchJoins, waiters+1-l.in))
	}
	return err
}

// join puts n more into the line, and returns when they stand there.
func (l *lockLine) join(ctx context.Context, n int) error {
	for range n {
		s := l.sessions[l.joined%len(l.sessions)]
		l.joined++
		l.wg.Go(func() {
			h, err := lock.New(s.Client(), l.path).Acquire(ctx)
			if err == nil {
				l.granted <- h
			} else if ctx.Err() == nil {
				l.fail(err)
			}
		})
	}
	l.in += n
	for {
		st, _, err := l.clients[0].Exists(ctx, l.path)
		if err != nil || int(st.NumChildren) == l.in {
			return err
		}
		select {
		case err := <-l.failed:
			return err
		case <-ctx.Done():
			return errInterrupted
		case <-time.After(time.Millisecond):
		}
	}
}

func (l *lockLine) fail(err error) {
	select {
	case l.failed <- err:
	default: // one is enough
	}
}

// next waits for the next holder.
func (l *lockLine) next(ctx context.Context) (*lock.Handle, error) {
	select {
	case h := <-l.granted:
		return h, nil
	case err := <-l.failed:
		return nil, err
	case <-ctx.Done():
		return nil, errInterrupted
	}
}

// quiet returns the count of events once the one who has joined has registered all
// of its watches, which come with events as well.
func (l *lockLine) quiet(ctx context.Context) (uint64, error) {
	last, err := l.events(ctx)
	for same, tries := 0, 0; err == nil && same < 2 && tries < maxQuietTries; tries++ {
		if err = l.sleep(ctx, quietPause); err != nil {
			break
		}
		var n uint64
		if n, err = l.events(ctx); n == last {
			same++
		} else {
			last, same = n, 0
		}
	}
	return last, err
}

const (
	quietPause    = 3 * time.Millisecond
	maxQuietTries = 50 // others may keep the cluster busy
)

// events is how many events all servers at the endpoints have sent.
func (l *lockLine) events(ctx context.Context) (uint64, error) {
	u, err := l.usage(ctx)
	var n uint64
	for _, s := range u.servers {
		n += s.EventsSent
	}
	return n, err
}

// checkWaiters refuses lengths that cannot be measured.
func (o *benchOptions) checkWaiters() error {
	switch {
	case len(o.waiters) == 0:
		return nil
	case o.workload != benchLock:
		return usagef("--waiters is for bench lock")
	case slices.ContainsFunc(o.waiters, func(n int) bool { return n < 1 || n > maxBenchWaiters }):
		return usagef("--waiters: each must be from 1 to %d", maxBenchWaiters)
	}
	return nil
}
