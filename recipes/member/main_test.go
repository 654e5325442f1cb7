package member

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/recipes/internal/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	fake    = rig.Fake
	connect = rig.Connect
)

func join(t *testing.T, g *Group, id, data string, opts ...Option) *Membership {
	t.Helper()
	m, err := g.Join(t.Context(), id, []byte(data), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Leave(t.Context()) })
	return m
}

func leave(t *testing.T, m *Membership) {
	t.Helper()
	if err := m.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// watcher collects the lists that a watch yields.
type watcher struct{ lists chan []Member }

func watch(t *testing.T, g *Group) *watcher {
	t.Helper()
	w := &watcher{lists: make(chan []Member, 1000)}
	go func() { // ends with the test
		for list, err := range g.Watch(t.Context()) {
			if err != nil {
				return
			}
			w.lists <- list
		}
	}()
	return w
}

// next waits for the next list and returns it as "id=data id=data".
func (w *watcher) next(t *testing.T) string {
	t.Helper()
	select {
	case list := <-w.lists:
		return text(list)
	case <-time.After(time.Minute):
		t.Fatal("no list came")
		return ""
	}
}

// want fails the test unless these lists come next, and no other after them.
func (w *watcher) want(t *testing.T, lists ...string) {
	t.Helper()
	for _, want := range lists {
		if got := w.next(t); got != want {
			t.Fatalf("the list is %q, want %q", got, want)
		}
	}
	synctest.Wait()
	if len(w.lists) > 0 {
		t.Fatalf("unexpected list %q", text(<-w.lists))
	}
}

func text(list []Member) string {
	var s string
	for i, m := range list {
		if i > 0 {
			s += " "
		}
		s += m.ID + "=" + string(m.Data)
	}
	return s
}

// waitFor polls in fake time.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for range 100_000 {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("waited in vain")
}

func expire(c *fakecoord.Cluster, s client.SessionID) { c.Expire(uint64(s)) }
