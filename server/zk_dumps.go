package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/watch"
)

// The words that list things may have much to list, and everybody waits for the locks
// that they take. So they hold one for a part at a time, and put in order what they
// have found when they have let it go.
const (
	maxDumpedSessions = 10_000
	maxDumpedWatches  = 100_000
)

// dump lists the sessions and their ephemerals.
func (w *words) dump(b *strings.Builder) {
	var owners []session.ID
	w.s.machine.View(func(v *fsm.View) {
		fmt.Fprintf(b, "SessionTracker dump:\nGlobal Sessions(%d):\n", v.Sessions.Len())
		for s := range v.Sessions.All() {
			if len(owners) == maxDumpedSessions {
				break
			}
			fmt.Fprintf(b, "0x%x\t%dms\n", uint64(s.ID), s.Timeout.Milliseconds())
			owners = append(owners, s.ID)
		}
		fmt.Fprintf(b, "ephemeral nodes dump:\nSessions with Ephemerals (%d):\n", v.Tree.Counts().Owners)
	})
	for _, id := range owners {
		var paths []string
		w.s.machine.View(func(v *fsm.View) { paths = v.Tree.Ephemerals(id, "/") })
		if len(paths) > 0 {
			fmt.Fprintf(b, "0x%x:\n\t%s\n", uint64(id), strings.Join(paths, "\n\t"))
		}
	}
	b.WriteString("Connections dump:\nConnections Sets (1):\n")
	for _, c := range w.zkConns() {
		fmt.Fprintf(b, "\t/%s\n", c.guest.address)
	}
}

// zkWatched is a connection of the ZooKeeper port and what it watches.
type zkWatched struct {
	c    *zkConn
	path string
}

// zkWatches lists the watches of the ZooKeeper port; all is false if there are more.
func (w *words) zkWatches() (out []zkWatched, all bool) {
	h := w.s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	all = true
	h.watches.Each(func(sub *watch.Subscriber, path string, _ watch.Kind) bool {
		c, ok := sub.Data.(*zkConn)
		if !ok {
			return true
		}
		if all = len(out) < maxDumpedWatches; all {
			out = append(out, zkWatched{c, path})
		}
		return all
	})
	return out, all
}

// wchs counts the watches. Of very many it says how many paths there are at least.
func (w *words) wchs(b *strings.Builder) {
	list, _ := w.zkWatches()
	paths := make(map[string]struct{}, len(list))
	for _, x := range list {
		paths[x.path] = struct{}{}
	}
	watchers, total := 0, 0
	w.s.hub.mu.Lock()
	for st := range w.s.hub.conns {
		if c, ok := st.(*zkConn); ok {
			if n := w.s.hub.watches.CountOf(c.sub); n > 0 {
				watchers++
				total += n
			}
		}
	}
	w.s.hub.mu.Unlock()
	fmt.Fprintf(b, "%d connections watching %d paths\nTotal watches:%d\n", watchers, len(paths), total)
}

// wchp lists the watches by path.
func (w *words) wchp(b *strings.Builder) {
	w.listWatches(b, func(path, id string) (string, string) { return path, id })
}

// wchc lists the watches by session.
func (w *words) wchc(b *strings.Builder) {
	w.listWatches(b, func(path, id string) (string, string) { return id, path })
}

func (w *words) listWatches(b *strings.Builder, order func(path, id string) (key, value string)) {
	list, all := w.zkWatches()
	groups := make(map[string][]string)
	for _, x := range list {
		id, _, _ := x.c.bound()
		k, v := order(x.path, fmt.Sprintf("0x%x", uint64(id)))
		groups[k] = append(groups[k], v)
	}
	keys := make([]string, 0, len(groups))
	for k := range groups {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		slices.Sort(groups[k])
		fmt.Fprintf(b, "%s\n\t%s\n", k, strings.Join(slices.Compact(groups[k]), "\n\t"))
	}
	if !all {
		fmt.Fprintf(b, "(there are more watches than these %d)\n", maxDumpedWatches)
	}
}
