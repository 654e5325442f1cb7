package test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/seed"
)

// trouble is everything that goes wrong beside the contenders.
type trouble struct {
	c       *processes
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	mu      sync.Mutex
	happens map[string]int
}

func startTrouble(ctx context.Context, c *processes, roots []string) *trouble {
	ctx, cancel := context.WithCancel(ctx)
	tr := &trouble{c: c, cancel: cancel, happens: map[string]int{}}
	cl := dial(c.t, c.endpoints(), quiet)
	tr.every(ctx, 5*time.Second, "leaders killed", func() { bounce(c.leader(), (*process).kill) })
	tr.every(ctx, 9*time.Second, "followers restarted", func() { bounce(c.follower(), func(p *process) { p.stop() }) })
	rnd := seed.Rand(c.t)
	tr.every(ctx, 300*time.Millisecond, "folders deleted", func() {
		deleteAll(ctx, cl, roots[rnd.IntN(len(roots))])
	})
	return tr
}

// every does something again and again, one thing at a time with servers.
func (tr *trouble) every(ctx context.Context, tick time.Duration, what string, f func()) {
	tr.wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(tick):
			}
			f()
			tr.mu.Lock()
			tr.happens[what]++
			tr.mu.Unlock()
		}
	})
}

var oneServerAtATime sync.Mutex

// bounce ends a server in the given way and starts it again.
func bounce(p *process, end func(*process)) {
	oneServerAtATime.Lock()
	defer oneServerAtATime.Unlock()
	end(p)
	p.start()
	poll(p.c.t, 30*time.Second, "ready "+p.name, p.ready)
}

func (tr *trouble) stop() {
	tr.cancel()
	tr.wg.Wait()
}

func (tr *trouble) String() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	text := ""
	for _, what := range slices.Sorted(maps.Keys(tr.happens)) {
		text += fmt.Sprintf("%d %s, ", tr.happens[what], what)
	}
	return text
}

// deleteAll deletes a node and all below it, as an administrator does who does
// not know that it is in use. What is made meanwhile may stay.
func deleteAll(ctx context.Context, c *client.Client, path string) {
	names, _ := c.Children(ctx, path)
	for _, name := range names {
		deleteAll(ctx, c, path+"/"+name)
	}
	_ = c.Delete(ctx, path, client.AnyVersion)
}
