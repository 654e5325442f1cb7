package cache

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/coordtest"
)

// model is what the subtree was at each transaction, kept by its only writer.
type model struct {
	t     *testing.T
	cl    *client.Client
	r     *rand.Rand
	pad   string // data begins with it
	keep  bool   // nothing is deleted
	grow  bool   // nodes are created and not set
	now   map[string]string
	zxids []client.Zxid
	was   []string
}

func newModel(t *testing.T, cl *client.Client, r *rand.Rand) *model {
	return &model{t: t, cl: cl, r: r, now: map[string]string{}}
}

// text of the model, as that of a copy.
func (m *model) text() string {
	paths := slices.SortedFunc(maps.Keys(m.now), comparePaths)
	var b strings.Builder
	for _, p := range paths {
		b.WriteString(p + "=" + strings.TrimPrefix(m.now[p], m.pad) + " ")
	}
	return strings.TrimSpace(b.String())
}

// step does a random transaction of one to three operations.
func (m *model) step() {
	m.t.Helper()
	for {
		next := maps.Clone(m.now)
		var ops []client.Op
		for range 1 + m.r.IntN(3) {
			if op, ok := m.op(next); ok {
				ops = append(ops, op)
			}
		}
		if len(ops) == 0 {
			continue
		}
		results, err := m.cl.WriteSettled(m.t.Context(), append(ops, client.OpSet("/clock", nil, client.AnyVersion))...)
		must(m.t, err)
		m.now = next
		m.zxids, m.was = append(m.zxids, results[len(ops)].Stat.Mzxid), append(m.was, m.text())
		return
	}
}

// op chooses an operation that can be done, and does it in the model.
func (m *model) op(next map[string]string) (client.Op, bool) {
	paths := slices.Sorted(maps.Keys(next))
	data := fmt.Sprintf("%s%d", m.pad, m.r.IntN(1000))
	if len(paths) == 0 {
		next["/r"] = data
		return client.OpCreate("/r", []byte(data)), true
	}
	p := paths[m.r.IntN(len(paths))]
	choice := m.r.IntN(3)
	if m.grow {
		choice = 0
	}
	switch choice {
	case 0:
		p += "/" + string(rune('a'+m.r.IntN(4)))
		if _, ok := next[p]; ok || strings.Count(p, "/") > 4 {
			return client.Op{}, false
		}
		next[p] = data
		return client.OpCreate(p, []byte(data)), true
	case 1:
		for _, o := range paths {
			if strings.HasPrefix(o, p+"/") || m.keep {
				return client.Op{}, false
			}
		}
		delete(next, p)
		return client.OpDelete(p, client.AnyVersion), true
	default:
		next[p] = data
		return client.OpSet(p, []byte(data), client.AnyVersion), true
	}
}

// sight is what a reader of the copy has seen.
type sight struct {
	at   client.Zxid
	text string
}

// watcher looks at the copy whenever it moves, and replays its changes.
type watcher struct {
	mu     sync.Mutex
	sights []sight
	replay map[string]string
	orders []string
}

func (w *watcher) look(c *Cache, pad string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.mu.RLock() // Zxid and All in one look
	nodes, at := c.view.below(""), c.at
	c.mu.RUnlock()
	if at == 0 {
		return
	}
	w.sights = append(w.sights, sight{at, strings.ReplaceAll(text(nodes), pad, "")})
}

// change replays one change, which must fit what was reported before.
func (w *watcher) change(ch Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := ch.Node.Path
	_, had := w.replay[p]
	dir, _ := split(p)
	_, parent := w.replay[dir]
	if (ch.Type == client.EventCreated) == had || ch.Type == client.EventCreated && p != "/r" && !parent {
		w.orders = append(w.orders, fmt.Sprintf("%s %s while it was there: %v, its parent: %v", ch.Type, p, had, parent))
	}
	if ch.Type == client.EventDeleted {
		delete(w.replay, p)
	} else {
		w.replay[p] = string(ch.Node.Data)
	}
}

// check compares all that was seen with what was.
func (m *model) check(w *watcher) {
	m.t.Helper()
	var last client.Zxid
	for _, s := range w.sights {
		i, exact := slices.BinarySearchFunc(m.zxids, s.at, func(z, at client.Zxid) int { return cmp.Compare(z, at) })
		if !exact {
			i--
		}
		want := ""
		if i >= 0 {
			want = m.was[i]
		}
		if s.text != want {
			m.t.Fatalf("at %s the copy showed %q, the subtree was %q", s.at, s.text, want)
		}
		if s.at < last {
			m.t.Fatalf("from %s the copy went back to %s", last, s.at)
		}
		last = s.at
	}
	for _, o := range w.orders {
		m.t.Errorf("reported out of order: %s", o)
	}
	if !maps.Equal(w.replay, m.now) {
		m.t.Fatalf("the changes add up to %v, want %v", w.replay, m.now)
	}
}

// follow starts a copy with a watcher, and a reader that looks all the time.
func follow(t *testing.T, cl *client.Client, m *model) (*Cache, *watcher, func()) {
	w := &watcher{replay: map[string]string{}}
	var c *Cache
	c = New(cl, "/r", OnChange(func(ch Change) {
		w.look(c, m.pad)
		w.change(ch)
	}))
	stop := running(t, c)
	return c, w, func() { _ = stop() }
}

// TestEveryStateShownHasExisted makes random changes while connections break,
// history is lost and Run is restarted, and compares each state that the copy
// shows with what the subtree was at that transaction.
func TestEveryStateShownHasExisted(t *testing.T) {
	r := random(t)
	for _, paged := range []bool{false, true} {
		for range 6 {
			fake(t, 2, func(t *testing.T, fc *fakecoord.Cluster) { randomFake(t, fc, r, paged) })
		}
	}
}

func randomFake(t *testing.T, fc *fakecoord.Cluster, r *rand.Rand, paged bool) {
	cl, other := connect(t, fc, client.WithSessionTimeout(time.Minute)), connect(t, fc)
	if paged {
		fc.PageSize = 2
	}
	create(t, other, "/clock", "")
	m := newModel(t, other, r)
	m.keep = paged // the stand-in does not tell by a pzxid what went
	for range 30 {
		m.step()
	}
	faults := newRand(r.Uint64())
	fc.OnReply(func(_ string, reply *coordpb.Reply) fakecoord.Action {
		if reply.Seq == 0 && faults.IntN(30) == 0 {
			return fakecoord.Cut
		}
		return fakecoord.Pass
	})
	c, w, stop := follow(t, cl, m)
	for range 60 {
		switch r.IntN(8) {
		case 0:
			fc.Server("n1").CutAll()
			fc.Server("n2").CutAll()
		case 1:
			fc.Forget()
			fc.Server("n1").CutAll()
			fc.Server("n2").CutAll()
			for range 8 { // while it is read again
				m.step()
			}
		case 2:
			stop()
			m.step()
			s := running(t, c)
			stop = func() { _ = s() }
		default:
			m.step()
		}
		if r.IntN(3) == 0 {
			time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
		}
		w.look(c, m.pad)
	}
	fc.OnReply(nil)
	must(t, c.WaitSynced(t.Context()))
	must(t, c.WaitZxid(t.Context(), m.zxids[len(m.zxids)-1]))
	synctest.Wait()
	w.look(c, m.pad)
	stop()
	m.check(w)
}

// TestRealPagesAndDeletions is the same on a real server, with data so large that
// a page holds a few nodes only, and changes that come between the pages.
func TestRealPagesAndDeletions(t *testing.T) {
	r := random(t)
	rounds := 5
	if testing.Short() {
		rounds = 1
	}
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			cc := coordtest.Start(t, coordtest.Latency(time.Millisecond))
			cl, other := cc.Dial(), cc.Dial()
			create(t, other, "/clock", "")
			m := newModel(t, other, r)
			m.pad, m.grow = strings.Repeat("#", 120_000), true
			for len(m.now) < 50 {
				m.step()
			}
			m.grow = false
			c, w, stop := follow(t, cl, m)
			for range 30 {
				m.step()
				w.look(c, m.pad)
				if r.IntN(10) == 0 {
					cc.Break(cl)
				}
			}
			must(t, c.WaitSynced(t.Context()))
			must(t, c.WaitZxid(t.Context(), m.zxids[len(m.zxids)-1]))
			w.look(c, m.pad)
			wantStats(t, c, other)
			stop()
			m.check(w)
			must(t, c.WaitZxid(t.Context(), c.Zxid()))
		})
	}
}

// wantStats compares the copy's Stats with those of the cluster.
func wantStats(t *testing.T, c *Cache, cl *client.Client) {
	t.Helper()
	for n, err := range cl.Walk(t.Context(), c.Root(), client.WithoutData()) {
		must(t, err)
		if have, ok := c.Get(n.Path); !ok || have.Stat != n.Stat {
			t.Fatalf("%s: the copy's Stat is %+v, want %+v", n.Path, have.Stat, n.Stat)
		}
	}
}

// TestParentOfAnOlderPageCountsItsChildren reads a parent before its children
// change, and the children after it.
func TestParentOfAnOlderPageCountsItsChildren(t *testing.T) {
	b := &build{tree: newTree(), page: map[string]client.Zxid{"/r": 5, "/r/new": 9}, pos: 5, end: 9}
	b.tree.put(client.Node{Path: "/r", Stat: client.Stat{Czxid: 1, Mzxid: 1, Pzxid: 4, Cversion: 2, NumChildren: 2}})
	b.tree.put(client.Node{Path: "/r/new", Stat: client.Stat{Czxid: 7, Mzxid: 7, Pzxid: 7}})
	c := New(nil, "/r")
	ev := func(typ client.EventType, path string, z client.Zxid) event {
		return event{Event: client.Event{Type: typ, Path: path, Zxid: z, Last: true, Stat: client.Stat{Czxid: 7, Mzxid: z, Pzxid: 7}}}
	}
	b.apply(c, []event{ev(client.EventCreated, "/r/new", 7)})
	b.apply(c, []event{ev(client.EventDeleted, "/r/gone", 8)})
	want := client.Stat{Czxid: 1, Mzxid: 1, Pzxid: 8, Cversion: 4, NumChildren: 2}
	if got := b.tree.nodes["/r"].Stat; got != want {
		t.Errorf("the parent's Stat is %+v, want %+v", got, want)
	}
}
