package lock

import (
	"cmp"
	"maps"
	"slices"

	"github.com/coordd/coord/client"
)

// stuckIn returns the sessions that wait for something that will never come. Who
// waits for nothing is free, and so is who waits only for those that are free: of
// the holders of a lock for all, of those of a semaphore for one. What is left is
// in a cycle or waits for one that is.
func stuckIn(wants map[client.SessionID][]want) map[client.SessionID]bool {
	stuck := map[client.SessionID]bool{}
	for s, w := range wants {
		if len(w) > 0 {
			stuck[s] = true
		}
	}
	for changed := true; changed; {
		changed = false
		for s := range stuck {
			if !slices.ContainsFunc(wants[s], func(w want) bool { return w.hopeless(stuck) }) {
				delete(stuck, s)
				changed = true
			}
		}
	}
	return stuck
}

// hopeless says whether the wait will not end, given who is stuck.
func (w *want) hopeless(stuck map[client.SessionID]bool) bool {
	isStuck := func(p Party) bool { return stuck[p.Session] }
	if w.any {
		return !slices.ContainsFunc(w.holders, func(p Party) bool { return !isStuck(p) })
	}
	return slices.ContainsFunc(w.holders, isStuck)
}

// cyclesIn returns cycles such that each wait that in accepts, and that is part of
// a cycle, is in one of them, or another wait of that session for the same other
// one is. Each is the shortest for one of these waits.
func cyclesIn(wants map[client.SessionID][]want, in func(*want) bool) []Cycle {
	stuck := stuckIn(wants)
	var out []Cycle
	covered := map[pair]bool{}
	for _, s := range slices.Sorted(maps.Keys(stuck)) {
		for i := range wants[s] {
			w := &wants[s][i]
			known := slices.ContainsFunc(w.holders, func(h Party) bool { return covered[pair{s, h.Session}] })
			if known || !in(w) {
				continue
			}
			cycle := shortestCycle(wants, stuck, s, w)
			for i := range cycle {
				covered[pair{cycle[i].Waiter.Session, cycle[i].Holder.Session}] = true
			}
			if cycle != nil {
				out = append(out, youngestLast(cycle))
			}
		}
	}
	return out
}

// pair is a session that waits, and one that it waits for.
type pair struct{ waiter, holder client.SessionID }

// shortestCycle is one from s, by its wait w, back to s, nil if there is none.
func shortestCycle(wants map[client.SessionID][]want, stuck map[client.SessionID]bool, s client.SessionID, w *want) Cycle {
	by := map[client.SessionID]Wait{} // by which a session was reached first
	var next []client.SessionID
	follow := func(w *want) {
		if !w.hopeless(stuck) {
			return
		}
		for _, h := range w.holders {
			if _, seen := by[h.Session]; !seen && stuck[h.Session] {
				by[h.Session] = Wait{Lock: w.lock, Waiter: w.waiter, Holder: h, began: w.began, refuses: w.refuses}
				next = append(next, h.Session)
			}
		}
	}
	for follow(w); len(next) > 0 && next[0] != s; next = next[1:] {
		for i := range wants[next[0]] {
			follow(&wants[next[0]][i])
		}
	}
	last, ok := by[s]
	if !ok {
		return nil
	}
	cycle := Cycle{last}
	for last.Waiter.Session != s {
		last = by[last.Waiter.Session]
		cycle = append(cycle, last)
	}
	slices.Reverse(cycle)
	return cycle
}

// youngestLast turns a cycle so that it ends with the wait that began last.
func youngestLast(c Cycle) Cycle {
	last := 0
	for i := range c {
		if cmp.Or(cmp.Compare(c[i].began, c[last].began), cmp.Compare(c[i].Waiter.Node, c[last].Waiter.Node)) > 0 {
			last = i
		}
	}
	return append(slices.Clone(c[last+1:]), c[:last+1]...)
}
