package cache

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/recipetest"
)

// reading follows a subtree, writes, and reads what it has written.
func reading(ctx context.Context, p *recipetest.Party) error {
	if _, err := p.Client.Create(ctx, p.Root, []byte("0")); err != nil && !errors.Is(err, client.ErrNodeExists) {
		return err
	}
	c := New(p.Client, p.Root)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()
	defer func() {
		stop()
		<-ended
	}()
	for i := range 3 {
		want := strings.Repeat("x", i+1)
		st, err := p.Client.Set(ctx, p.Root, []byte(want), client.AnyVersion)
		if err != nil {
			return err
		}
		inner, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(p.Client.Session().Context(), cancel)
		err = c.WaitZxid(inner, st.Mzxid)
		stop()
		cancel()
		if err != nil {
			return err
		}
		if n, ok := c.Get(p.Root); !ok || string(n.Data) != want && n.Stat.Mzxid <= st.Mzxid {
			p.Fail("wrote %q and read %q", want, n.Data)
		}
	}
	return nil
}

// TestReadYourWritesAtEveryStep on a real server.
func TestReadYourWritesAtEveryStep(t *testing.T) {
	recipetest.EachStep(t, recipetest.Scenario{Act: reading, Left: func(client.Node) bool { return true }})
}
