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

// cyclesIn returns cycles such that each session that is in any is in one of
// them, each the shortest for one of its sessions.
func cyclesIn(wants map[client.SessionID][]want) []Cycle {
	stuck := stuckIn(wants)
	var out []Cycle
	covered := map[client.SessionID]bool{}
	for _, s := range slices.Sorted(maps.Keys(stuck)) {
		if covered[s] {
			continue
		}
		cycle := shortestCycle(wants, stuck, s)
		for i := range cycle {
			covered[cycle[i].Waiter.Session] = true
		}
		if cycle != nil {
			out = append(out, youngestLast(cycle))
		}
	}
	return out
}

// shortestCycle is one from s back to s, nil if there is none.
func shortestCycle(wants map[client.SessionID][]want, stuck map[client.SessionID]bool, s client.SessionID) Cycle {
	by := map[client.SessionID]Wait{} // by which a session was reached first
	for next := []client.SessionID{s}; len(next) > 0; next = next[1:] {
		for _, w := range wants[next[0]] {
			if !w.hopeless(stuck) {
				continue
			}
			for _, h := range w.holders {
				if _, seen := by[h.Session]; seen || !stuck[h.Session] {
					continue
				}
				by[h.Session] = Wait{Lock: w.lock, Waiter: w.waiter, Holder: h, began: w.began, refuses: w.refuses}
				next = append(next, h.Session)
			}
		}
	}
	w, ok := by[s]
	if !ok {
		return nil
	}
	cycle := Cycle{w}
	for w.Waiter.Session != s {
		w = by[w.Waiter.Session]
		cycle = append(cycle, w)
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
