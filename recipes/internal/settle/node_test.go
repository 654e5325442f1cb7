package settle

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
)

// TestOnlyTheVeryNodeIsRemoved: a path that has come again stands for another
// node.
func TestOnlyTheVeryNodeIsRemoved(t *testing.T) {
	fake(t, func(t *testing.T, c *fakecoord.Cluster, cl *client.Client) {
		create := func() Node {
			made, err := Write(t.Context(), cl, nil, client.OpCreate("/n", nil, client.WithEphemeral()))
			if err != nil {
				t.Fatal(err)
			}
			return NodeOf(made[0])
		}
		old := create()
		c.Delete("/n")
		again := create()
		if old.Same(again.Stat) || !again.Same(again.Stat) {
			t.Fatal(old, again)
		}
		if err := <-old.Remove(cl); !Missing(err) || !Gone(err) || len(c.Paths("/n")) != 1 {
			t.Fatal(err, c.Paths("/n"))
		}
		if _, err := cl.Txn(t.Context(), old.Check()); !Missing(err) {
			t.Fatal(err)
		}
		if _, err := cl.Txn(t.Context(), again.Check()); err != nil {
			t.Fatal(err)
		}
		if err := <-again.Remove(cl); err != nil || len(c.Paths("/n")) != 0 {
			t.Fatal(err, c.Paths("/n"))
		}
		if err := <-again.Remove(cl); !Missing(err) {
			t.Fatal(err)
		}
	})
}

func TestUntilGone(t *testing.T) {
	fake(t, func(t *testing.T, c *fakecoord.Cluster, cl *client.Client) {
		if err := UntilGone(t.Context(), cl, "/n"); err != nil { // it never was
			t.Fatal(err)
		}
		if _, err := cl.Create(t.Context(), "/n", nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := UntilGone(ctx, cl, "/n"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		gone := make(chan error, 1)
		go func() { gone <- UntilGone(t.Context(), cl, "/n") }()
		if _, err := cl.Set(t.Context(), "/n", nil, client.AnyVersion); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(gone) != 0 {
			t.Fatal("a change was taken for the end")
		}
		c.Delete("/n")
		if err := <-gone; err != nil {
			t.Fatal(err)
		}
	})
}

func TestNamesAreCuratorsAndUnique(t *testing.T) {
	form := regexp.MustCompile(`^_c_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}-lock-$`)
	seen := map[string]bool{}
	for range 1000 {
		name := Name("lock-")
		if !form.MatchString(name) || seen[name] {
			t.Fatal(name)
		}
		seen[name] = true
	}
}
