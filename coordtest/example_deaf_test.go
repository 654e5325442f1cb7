package coordtest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/coordtest"
	"github.com/coordd/coord/recipes/lock"
)

// First example: the work goes on when the lock is lost.
//
// Hosts write the pages of a report, one host at a time. The test cuts the one
// that is at it off and looks who writes.

// press is what the hosts write on.
type press struct {
	mu    sync.Mutex
	pages []string // who has written each
}

func (p *press) write(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pages = append(p.pages, host)
}

// mixed says that a host has written after another one had begun.
func (p *press) mixed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	ended := map[string]bool{}
	for i, host := range p.pages {
		if ended[host] {
			return fmt.Errorf("%s goes on in the report of another: %q", host, p.pages[:i+1])
		}
		if i > 0 && p.pages[i-1] != host {
			ended[p.pages[i-1]] = true
		}
	}
	return nil
}

// writeDeaf has the mistake: it takes no notice of the context that Do hands to
// it, so it goes on when the lock is lost.
func writeDeaf(ctx context.Context, c *client.Client, p *press, host string) error {
	return lock.New(c, "/locks/report").Do(ctx, func(context.Context, *lock.Handle) error {
		for range 30 {
			time.Sleep(time.Second)
			p.write(host)
		}
		return nil
	})
}

// writeListening stops when the lock is lost.
func writeListening(ctx context.Context, c *client.Client, p *press, host string) error {
	return lock.New(c, "/locks/report").Do(ctx, func(ctx context.Context, _ *lock.Handle) error {
		for range 30 {
			select {
			case <-time.After(time.Second):
				p.write(host)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
}

type writeReport func(ctx context.Context, c *client.Client, p *press, host string) error

// cutOffWriter is the test that one would write: it returns what is wrong.
func cutOffWriter(t *testing.T, write writeReport) error {
	c := coordtest.Start(t)
	one, two := c.Dial(), c.Dial()
	var p press
	var hosts sync.WaitGroup
	hosts.Go(func() { _ = write(t.Context(), one, &p, "one") }) // it may lose the lock
	time.Sleep(5500 * time.Millisecond)
	c.Partition(one)
	var err error
	hosts.Go(func() { err = write(t.Context(), two, &p, "two") })
	hosts.Wait()
	if err != nil {
		return err
	}
	return p.mixed()
}

func TestExampleOfWorkThatGoesOnWithoutTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := cutOffWriter(t, writeDeaf); err == nil || !strings.Contains(err.Error(), "one goes on in the report of another") {
			t.Errorf("the mistake is not found: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		if err := cutOffWriter(t, writeListening); err != nil {
			t.Error(err)
		}
	})
}
