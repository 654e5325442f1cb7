package session

import "time"

// The three orders a [liveness] stands in.
const (
	byDue = iota
	bySuspect
	byTimeout
	orders
)

// agenda is a binary heap of sessions by one of their keys, each of which knows
// its place, so that one can be moved or taken out.
//
// Invariants: heap[i].place[order] == i; no key is below that of its parent.
type agenda struct {
	order int
	heap  []*liveness
}

func (a *agenda) key(i int) time.Duration { return a.heap[i].key[a.order] }

func (a *agenda) add(l *liveness, key time.Duration) {
	l.key[a.order] = key
	l.place[a.order] = len(a.heap)
	a.heap = append(a.heap, l)
	a.up(len(a.heap) - 1)
}

func (a *agenda) remove(l *liveness) {
	i, last := l.place[a.order], len(a.heap)-1
	if i != last {
		a.swap(i, last)
	}
	a.heap[last] = nil
	a.heap = a.heap[:last]
	if i != last && !a.down(i) {
		a.up(i)
	}
}

func (a *agenda) move(l *liveness, key time.Duration) {
	l.key[a.order] = key
	if i := l.place[a.order]; !a.down(i) {
		a.up(i)
	}
}

func (a *agenda) swap(i, j int) {
	a.heap[i], a.heap[j] = a.heap[j], a.heap[i]
	a.heap[i].place[a.order] = i
	a.heap[j].place[a.order] = j
}

func (a *agenda) up(i int) {
	for i > 0 && a.key(i) < a.key((i-1)/2) {
		a.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (a *agenda) down(i int) bool {
	start := i
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(a.heap); c++ {
			if a.key(c) < a.key(least) {
				least = c
			}
		}
		if least == i {
			return i > start
		}
		a.swap(i, least)
		i = least
	}
}

// reached collects those whose key is at or before now, without moving any:
// only they and their children are looked at.
func (a *agenda) reached(now time.Duration) []*liveness {
	var found []*liveness
	if len(a.heap) == 0 {
		return nil
	}
	for stack := []int{0}; len(stack) > 0; {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if a.key(i) > now {
			continue
		}
		found = append(found, a.heap[i])
		for c := 2*i + 1; c <= 2*i+2 && c < len(a.heap); c++ {
			stack = append(stack, c)
		}
	}
	return found
}
