package counter

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/recipetest"
)

// TestAddAtEveryStep on a real server: the number is what the callers were told.
func TestAddAtEveryStep(t *testing.T) {
	var mu sync.Mutex
	sure, unknown := map[string]int64{}, map[string]int64{}
	adding := func(ctx context.Context, p *recipetest.Party) error {
		c := New(p.Client, p.Root+"/c")
		for range 3 {
			_, err := c.Add(ctx, 1)
			mu.Lock()
			if err == nil {
				sure[p.Root]++
			} else if errors.Is(err, client.ErrUnknownOutcome) {
				unknown[p.Root]++
			}
			mu.Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	}
	s := recipetest.Contenders(adding)
	s.Left = func(n client.Node) bool { return strings.HasSuffix(n.Path, "/c") }
	s.Check = func(t testing.TB, o recipetest.Outcome) {
		have, err := New(o.Client, o.Root+"/c").Get(t.Context())
		mu.Lock()
		defer mu.Unlock()
		if err != nil || have < sure[o.Root] || have > sure[o.Root]+unknown[o.Root] {
			t.Errorf("%s at step %d: the number is %d (%v), %d were added for sure and %d perhaps",
				o.Fault, o.Step, have, err, sure[o.Root], unknown[o.Root])
		}
		delete(sure, o.Root)
		delete(unknown, o.Root)
	}
	recipetest.EachStep(t, s)
}
