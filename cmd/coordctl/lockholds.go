package main

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/znode"
)

// zxidClock knows the times of some transactions, by the cluster's clock.
type zxidClock struct{ points []clockPoint }

type clockPoint struct {
	zxid client.Zxid
	ms   int64 // since 1970
}

// note takes the time of a change that says when it was.
func (c *zxidClock) note(ev *client.Event) {
	switch {
	case ev.Type == client.EventCreated && ev.Stat.Czxid == ev.Zxid:
		c.points = append(c.points, clockPoint{ev.Zxid, ev.Stat.Ctime})
	case ev.Type == client.EventChanged && ev.Stat.Mzxid == ev.Zxid:
		c.points = append(c.points, clockPoint{ev.Zxid, ev.Stat.Mtime})
	}
}

func (c *zxidClock) sort() {
	slices.SortFunc(c.points, func(a, b clockPoint) int { return cmp.Compare(a.zxid, b.zxid) })
}

// between bounds the time of a transaction; now bounds those that nothing follows.
func (c *zxidClock) between(z client.Zxid, now time.Time) (from, to time.Time) {
	i, found := slices.BinarySearchFunc(c.points, z, func(p clockPoint, z client.Zxid) int { return cmp.Compare(p.zxid, z) })
	to = now
	if i < len(c.points) {
		to = time.UnixMilli(c.points[i].ms)
	}
	if found {
		return to, to
	}
	if i > 0 {
		from = time.UnixMilli(c.points[i-1].ms)
	}
	return from, to
}

// holdStats is what is known of how long a lock was held.
type holdStats struct {
	seen    int              // that were given back
	timed   []time.Duration  // of those, ascending
	session client.SessionID // of the newest contender
}

// p99 is the time that 99 of 100 holds do not exceed.
func (h *holdStats) p99() time.Duration {
	if len(h.timed) == 0 {
		return 0
	}
	return h.timed[(len(h.timed)*99+99)/100-1]
}

// place is a contender while the changes are played again.
type place struct {
	node   string
	number uint64
	holds  bool
	since  client.Zxid
}

// holds plays the changes of a lock again. present are the nodes of those that
// are there in the end.
func (h *lockHistory) holds(lock string, present []string, now time.Time) holdStats {
	var s holdStats
	line := h.before(lock, present)
	for i := range h.changes {
		ev := &h.changes[i]
		if !isContender(lock, ev.Path) {
			continue
		}
		own := slices.IndexFunc(line, func(p *place) bool { return p.node == ev.Path })
		switch {
		case ev.Type == client.EventCreated:
			p := &place{node: ev.Path, number: numberOf(ev.Path)}
			at, _ := slices.BinarySearchFunc(line, p, comparePlaces)
			line = slices.Insert(line, at, p)
			s.session = ev.Stat.EphemeralOwner
			if at == 0 && !isShared(ev.Path) || isSlot(ev.Path) {
				p.holds, p.since = true, ev.Zxid
			}
		case ev.Type == client.EventChanged && own >= 0 && !line[own].holds: // the grant is written down first
			line[own].holds, line[own].since = true, ev.Zxid
		case ev.Type == client.EventDeleted && own >= 0:
			h.ended(&s, line[own], ev.Zxid, now)
			line = slices.Delete(line, own, own+1)
			if len(line) > 0 && own == 0 && !line[0].holds && !isShared(line[0].node) && !waitsForSlot(line[0].node) {
				line[0].holds, line[0].since = true, ev.Zxid
			}
		}
	}
	slices.Sort(s.timed)
	return s
}

// before are the contenders that must have been there when the history begins:
// those that left, or are there in the end, without having come.
func (h *lockHistory) before(lock string, present []string) []*place {
	var line []*place
	came := map[string]bool{}
	for i := range h.changes {
		ev := &h.changes[i]
		if !isContender(lock, ev.Path) {
			continue
		}
		if ev.Type == client.EventDeleted && !came[ev.Path] {
			line = append(line, &place{node: ev.Path, number: numberOf(ev.Path)})
		}
		came[ev.Path] = ev.Type != client.EventDeleted
	}
	for _, node := range present {
		if _, changed := came[node]; !changed {
			line = append(line, &place{node: node, number: numberOf(node)})
		}
	}
	slices.SortFunc(line, comparePlaces)
	return line
}

// ended counts a hold, with its time if that is known well enough.
func (h *lockHistory) ended(s *holdStats, p *place, z client.Zxid, now time.Time) {
	if !p.holds {
		return
	}
	s.seen++
	a0, a1 := h.clock.between(p.since, now)
	b0, b1 := h.clock.between(z, now)
	shortest, longest := b0.Sub(a1), b1.Sub(a0)
	if a0.IsZero() || longest-shortest > max(maxHoldDoubt, longest/10) {
		return
	}
	s.timed = append(s.timed, max(0, (shortest+longest)/2))
}

// maxHoldDoubt is how far off the time of a hold may be.
const maxHoldDoubt = 250 * time.Millisecond

func comparePlaces(a, b *place) int {
	return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.node, b.node))
}

// numberOf is what the line is ordered by; slots stand in none.
func numberOf(node string) uint64 {
	n, _ := znode.SequenceOf(path.Base(node))
	return n
}

func isSlot(node string) bool { return slotEntry.MatchString(node) }
func waitsForSlot(node string) bool {
	return strings.Contains(path.Base(node), "-slot-") || isSlot(node)
}

func isShared(node string) bool {
	name := path.Base(node)
	return strings.Contains(name, "__READ__") || strings.Contains(name, "__WRIT__") || waitsForSlot(node)
}
