package recipetest

import (
	"context"
	"errors"
	"testing"

	"github.com/coordd/coord/client"
)

// TestWatchAtEveryStep: the present state comes first, then every change, once and
// in order, over connections that break anywhere.
func TestWatchAtEveryStep(t *testing.T) {
	node := func(p *Party) string { return p.Root + "/node" }
	eachStep(t, Scenario{
		Before: func(ctx context.Context, p *Party) error {
			if _, err := p.Client.Create(ctx, p.Root, nil, client.WithContainer()); err != nil {
				return err
			}
			_, err := p.Client.Create(ctx, node(p), []byte("0"))
			return err
		},
		Act: func(ctx context.Context, p *Party) error {
			got := ""
			for ev, err := range p.Client.Watch(ctx, node(p), client.Initial(client.Linearizable), client.WithData()) {
				if err != nil {
					return err
				}
				if got += string(ev.Data); (ev.Type == client.EventPresent) != (len(got) == 1) {
					p.Fail("event %s after %q", ev.Type, got)
				}
				if len(got) == 4 {
					break
				}
			}
			if got != "0123" {
				p.Fail("have seen %q", got)
			}
			return nil
		},
		Behind: func(ctx context.Context, p *Party) error {
			for _, data := range []string{"1", "2", "3"} {
				_ = Pass(ctx)
				if _, err := p.Client.Set(ctx, node(p), []byte(data), client.AnyVersion); err != nil {
					return err
				}
			}
			return nil
		},
		After: func(ctx context.Context, p *Party) error { return p.Client.Delete(ctx, node(p), client.AnyVersion) },
	})
}

// TestWritesAtEveryStep: each is done once or not at all, and in order.
func TestWritesAtEveryStep(t *testing.T) {
	var errs [3]error
	eachStep(t, Scenario{
		Act: func(ctx context.Context, p *Party) error {
			_, errs[0] = p.Client.Create(ctx, p.Root, nil, client.WithContainer())
			_, errs[1] = p.Client.Create(ctx, p.Root+"/n-", nil, client.WithSequential())
			_, errs[2] = p.Client.Txn(ctx, client.OpCreate(p.Root+"/n-", nil, client.WithSequential()), client.OpCreate(p.Root+"/m-", nil, client.WithSequential()))
			return errors.Join(errs[:]...)
		},
		Left: func(n client.Node) bool { return n.Stat.Kind == client.Persistent },
		Check: func(t testing.TB, o Outcome) {
			names, err := o.Client.Children(t.Context(), o.Root)
			if err != nil && !errors.Is(err, client.ErrNoNode) {
				t.Error(err)
			}
			least, most := 0, 0
			for i, err := range errs[1:] {
				if err == nil {
					least += 1 + i
				}
				if err == nil || errors.Is(err, client.ErrUnknownOutcome) {
					most += 1 + i
				}
			}
			if len(names) < least || len(names) > most {
				t.Errorf("%s at step %d: %q after %v", o.Fault, o.Step, names, errs)
			}
		},
	})
}

// TestReadsAtEveryStep: a connection that breaks in the middle of a list is not
// seen.
func TestReadsAtEveryStep(t *testing.T) {
	eachStep(t, Scenario{
		Act: func(ctx context.Context, p *Party) error {
			names, err := p.Client.Children(ctx, "/")
			if err == nil && len(names) == 0 {
				p.Fail("the root has no children")
			}
			n := 0
			for _, werr := range p.Client.Walk(ctx, "/zookeeper") {
				err = errors.Join(err, werr)
				n++
			}
			if err == nil && n < 2 {
				p.Fail("walked over %d nodes", n)
			}
			return err
		},
	})
}
