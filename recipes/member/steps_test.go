package member_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coord/internal/recipetest"
	"github.com/coordd/coord/recipes/member"
)

func group(p *recipetest.Party) *member.Group { return member.New(p.Client, p.Root+"/group") }

// joining joins under an id, publishes, stays a while and leaves.
func joining(id string, opts ...member.Option) func(context.Context, *recipetest.Party) error {
	return func(ctx context.Context, p *recipetest.Party) error {
		m, err := group(p).Join(ctx, id, []byte("1"), opts...)
		if err != nil {
			return err
		}
		err = m.SetData(ctx, []byte("2"))
		_ = recipetest.Pass(ctx)
		return errors.Join(err, m.Leave(ctx))
	}
}

// TestOneIDAtEveryStep: two take turns under one id. The one that comes second
// gets it when the first has gone, also if that died.
func TestOneIDAtEveryStep(t *testing.T) {
	same := joining("same", member.Patience(-1))
	recipetest.EachStep(t, recipetest.Scenario{Act: same, Before: same, Behind: same, After: same})
}

// TestTakeOverAtEveryStep: the victim replaces another, or does not; the other is
// told or stays.
func TestTakeOverAtEveryStep(t *testing.T) {
	stay := func(ctx context.Context, p *recipetest.Party) error {
		m, err := group(p).Join(ctx, "same", nil)
		if err != nil {
			return err
		}
		_ = recipetest.Pass(ctx)
		_ = recipetest.Pass(ctx)
		if cause := context.Cause(m.Context()); cause != nil && !errors.Is(cause, member.ErrTaken) {
			p.Fail("ended by %v", cause)
		}
		return m.Leave(ctx)
	}
	recipetest.EachStep(t, recipetest.Scenario{Before: stay, Act: joining("same", member.TakeOver()), After: stay})
}

// TestWatchAtEveryStep: over connections that break anywhere, each list follows
// from the one before.
func TestWatchAtEveryStep(t *testing.T) {
	recipetest.EachStep(t, recipetest.Scenario{
		Act: func(ctx context.Context, p *recipetest.Party) error {
			var seen []string
			for list, err := range group(p).Watch(ctx) {
				if err != nil {
					return err
				}
				s := ""
				for _, m := range list {
					s += m.ID + "=" + string(m.Data) + " "
				}
				if len(seen) > 0 && seen[len(seen)-1] == s {
					p.Fail("%q twice", s)
				}
				seen = append(seen, s)
				if s == "behind=2 " {
					break
				}
			}
			in := func(s string) bool { return strings.Contains(s, "behind=1") }
			if !strings.Contains(seen[0], "behind") && !slices.ContainsFunc(seen, in) {
				p.Fail("seen %q", seen)
			}
			return ctx.Err()
		},
		Before: joining("before"), Behind: joining("behind"), After: joining("after"),
		Faults: []recipetest.Fault{recipetest.Lose, recipetest.Blink, recipetest.Pause, recipetest.Restart},
	})
}
