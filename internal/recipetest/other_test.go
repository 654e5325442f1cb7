package recipetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/barrier"
	"github.com/coordd/coord/recipes/counter"
	"github.com/coordd/coord/recipes/election"
	"github.com/coordd/coord/recipes/member"
)

func campaign(ctx context.Context, p *Party) error {
	l, err := election.New(p.Client, p.Root+"/election").Campaign(ctx, []byte(p.Name))
	if err != nil {
		return err
	}
	leave := p.Enter(Hold{Token: l.FencingToken(), Context: l.Context()})
	said := l.Proclaim(ctx, []byte("second thoughts"))
	_ = Pass(l.Context())
	leave()
	if err := l.Resign(ctx); err != nil {
		return err
	}
	return said
}

func TestElectionAtEveryStep(t *testing.T) { EachStep(t, Contenders(campaign)) }

var errDone = errors.New("that will do")

// TestElectionRunAtEveryStep: it makes itself new sessions, so whatever happens to
// the one that it has, it leads in the end, unless it is told to stop.
func TestElectionRunAtEveryStep(t *testing.T) {
	s := Contenders(campaign)
	s.Act = func(ctx context.Context, p *Party) error {
		running := 0
		err := election.New(p.Client, p.Root+"/election").Run(ctx, nil, func(ctx context.Context, l *election.Leadership) error {
			running++
			if running > 1 {
				p.Fail("the function runs twice")
			}
			leave := p.Enter(Hold{Token: l.FencingToken(), Context: ctx})
			err := Pass(ctx)
			leave()
			running--
			if err == nil {
				return errDone
			}
			return nil
		})
		if errors.Is(err, errDone) {
			return nil
		}
		return err
	}
	EachStep(t, s)
}

// TestCounterAtEveryStep: an Add that returns without an error is in the number
// once, one that fails is in it at most once, and not at all unless its outcome is
// unknown.
func TestCounterAtEveryStep(t *testing.T) {
	add := func(ctx context.Context, p *Party) error {
		_, err := counter.New(p.Client, p.Root+"/counter").Add(ctx, 1)
		return err
	}
	var first, second error
	EachStep(t, Scenario{
		Before: add, Behind: add, After: add,
		Act: func(ctx context.Context, p *Party) error {
			first, second = add(ctx, p), add(ctx, p)
			return errors.Join(first, second)
		},
		Left: func(n client.Node) bool { return n.Stat.Kind == client.Persistent },
		Check: func(t testing.TB, o Outcome) {
			now, err := counter.New(o.Client, o.Root+"/counter").Get(t.Context())
			if err != nil {
				t.Error(err)
			}
			least, most := int64(3), int64(3)
			for _, err := range []error{first, second} {
				if err == nil {
					least++
				}
				if err == nil || errors.Is(err, client.ErrUnknownOutcome) {
					most++
				}
			}
			if now < least || now > most {
				t.Errorf("%s at step %d: the number is %d, want %d to %d (%v; %v)", o.Fault, o.Step, now, least, most, first, second)
			}
		},
	})
}

// TestBarrierAtEveryStep: the victim waits until the one behind lowers it.
func TestBarrierAtEveryStep(t *testing.T) {
	path := func(p *Party) *barrier.Barrier { return barrier.New(p.Client, p.Root+"/barrier") }
	wait := func(ctx context.Context, p *Party) error { return path(p).Wait(ctx) }
	EachStep(t, Scenario{
		Before: func(ctx context.Context, p *Party) error {
			return errors.Join(path(p).Raise(ctx), path(p).Wait(ctx))
		},
		Act:   wait,
		After: wait,
		Behind: func(ctx context.Context, p *Party) error {
			return errors.Join(Pass(ctx), path(p).Lower(ctx))
		},
	})
}

// TestRaiserAtEveryStep: the one who raises and lowers a barrier may vanish with
// the barrier up. Nobody waits for it here.
func TestRaiserAtEveryStep(t *testing.T) {
	EachStep(t, Scenario{
		Act: func(ctx context.Context, p *Party) error {
			b := barrier.New(p.Client, p.Root+"/barrier")
			if err := b.Raise(ctx); err != nil {
				return err
			}
			return b.Lower(ctx)
		},
		After: func(ctx context.Context, p *Party) error {
			b := barrier.New(p.Client, p.Root+"/barrier")
			return errors.Join(b.Lower(ctx), b.Wait(ctx))
		},
	})
}

// through enters a double barrier of n and leaves again.
func through(n int) func(context.Context, *Party) error {
	return func(ctx context.Context, p *Party) error {
		leave, err := barrier.NewDouble(p.Client, p.Root+"/double", n).Enter(ctx)
		if err != nil {
			return err
		}
		_ = Pass(ctx)
		return leave(ctx)
	}
}

// TestDoubleBarrierAtEveryStep: of three, the two others go through if the victim
// has gone in, or with the one that comes after.
func TestDoubleBarrierAtEveryStep(t *testing.T) {
	EachStep(t, Scenario{
		Before: through(2), Act: through(2),
		// If the victim does not come, another one does.
		Behind: func(ctx context.Context, p *Party) error {
			time.Sleep(away)
			ctx, cancel := context.WithTimeout(ctx, Timeout)
			defer cancel()
			if err := through(2)(ctx, p); !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			return nil
		},
	})
}

// TestMemberAtEveryStep: it rejoins by itself, and leaves nothing when it leaves.
func TestMemberAtEveryStep(t *testing.T) {
	join := func(ctx context.Context, p *Party) error {
		m, err := member.New(p.Client, p.Root+"/group").Join(ctx, p.Name, []byte("here"))
		if err != nil {
			return err
		}
		_ = Pass(ctx)
		set := m.SetData(ctx, []byte("there"))
		_ = Pass(ctx)
		return errors.Join(set, m.Leave(ctx))
	}
	EachStep(t, Contenders(join))
}
