package recipetest

import (
	"context"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/cache"
	"github.com/coordd/coord/recipes/once"
)

// TestOnceAtEveryStep: three hosts do one period. No two are at it at the same
// time, and there is one marker, of one who came to the end.
func TestOnceAtEveryStep(t *testing.T) {
	do := func(ctx context.Context, p *Party) error {
		done, err := once.New(p.Client, p.Root+"/job").Do(ctx, "2026-01-31", func(ctx context.Context, turn once.Turn) error {
			leave := p.Enter(Hold{Token: turn.Token, Context: ctx})
			defer leave()
			return Pass(ctx)
		})
		if p.Name == "after" && err == nil && !done.Repeated {
			p.Fail("the period was done again")
		}
		return err
	}
	EachStep(t, Scenario{
		Act: do, Behind: do, After: do,
		Left: func(n client.Node) bool { return n.Stat.Kind == client.Persistent },
		Check: func(t testing.TB, o Outcome) {
			list, err := once.New(o.Client, o.Root+"/job").History(t.Context())
			if err != nil || len(list) != 1 {
				t.Errorf("%s at step %d: markers %v, %v", o.Fault, o.Step, list, err)
			}
		},
	})
}

// TestPeriodicJobAtEveryStep: two hosts run a schedule; each period has its marker,
// also the one that was due when the host was lost that was at it.
func TestPeriodicJobAtEveryStep(t *testing.T) {
	const period = 6 * Timeout
	run := func(ctx context.Context, p *Party) error {
		ctx, cancel := context.WithTimeout(ctx, 2*period)
		defer cancel()
		enough := func(d once.Done, err error) {
			if err == nil && d.Period != first(ctx, p) {
				cancel()
			}
		}
		job := once.New(p.Client, p.Root+"/job", once.OnResult(enough))
		err := job.Run(ctx, once.Every(period), func(ctx context.Context, turn once.Turn) error {
			leave := p.Enter(Hold{Token: turn.Token, Context: ctx})
			defer leave()
			return Pass(ctx)
		})
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	EachStep(t, Scenario{
		Act: run, Behind: run,
		Left:   func(n client.Node) bool { return n.Stat.Kind == client.Persistent },
		Faults: []Fault{Lose, Expire, Kill, Pause},
		Check: func(t testing.TB, o Outcome) {
			list, err := once.New(o.Client, o.Root+"/job").History(t.Context())
			if err != nil || len(list) < 2 {
				t.Errorf("%s at step %d: markers %v, %v", o.Fault, o.Step, list, err)
			}
		},
	})
}

// first is the oldest period that is done.
func first(ctx context.Context, p *Party) string {
	list, err := once.New(p.Client, p.Root+"/job").History(ctx)
	if err != nil || len(list) == 0 {
		return ""
	}
	return list[0].Period
}

// TestCacheAtEveryStep: the copy has what was written before it was waited for.
func TestCacheAtEveryStep(t *testing.T) {
	folder := func(p *Party) string { return p.Root + "/config" }
	EachStep(t, Scenario{
		Before: func(ctx context.Context, p *Party) error {
			for _, path := range []string{p.Root, folder(p)} {
				if _, err := p.Client.Create(ctx, path, nil, client.WithContainer()); err != nil {
					return err
				}
			}
			_, err := p.Client.Create(ctx, folder(p)+"/a", []byte("1"))
			return err
		},
		Act: func(ctx context.Context, p *Party) error {
			c := cache.New(p.Client, folder(p))
			running, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- c.Run(running) }()
			defer func() { stop(); <-ended }()
			// Run ends with the session; who waits for the copy has to look.
			waiting, give := context.WithTimeout(ctx, 30*time.Second)
			defer give()
			if err := c.WaitSynced(waiting); err != nil {
				return err
			}
			if n, ok := c.Get(folder(p) + "/a"); !ok || string(n.Data) != "1" && string(n.Data) != "2" {
				p.Fail("the copy has %q, %v", n.Data, ok)
			}
			made, err := p.Client.Create(ctx, folder(p)+"/b", nil, client.WithEphemeral())
			if err != nil {
				return err
			}
			if err := c.WaitZxid(waiting, made.Stat.Czxid); err != nil {
				return err
			}
			if _, ok := c.Get(made.Path); !ok {
				p.Fail("the copy does not have what was written: %v", c.Children(folder(p)))
			}
			return p.Client.Delete(context.WithoutCancel(ctx), made.Path, client.AnyVersion)
		},
		Behind: func(ctx context.Context, p *Party) error {
			_, err := p.Client.Set(ctx, folder(p)+"/a", []byte("2"), client.AnyVersion)
			return err
		},
		Left: func(n client.Node) bool {
			return n.Stat.Kind == client.Persistent || n.Stat.EphemeralOwner != 0
		},
	})
}
