package lock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/coordd/coord/client"
)

// Info is what is known about a lock at one moment.
type Info struct {
	Path string
	Kind Kind // as the names there tell, "" if there are none
	// Limit is that of a semaphore, else 0.
	Limit   int
	Holders []Party // none if nobody wants the lock
	Waiters []Party // in the order of the queue
	// Warnings say what is wrong with the lock, in words for people.
	Warnings []string
}

// Inspect shows holders and waiting line of the lock at a path, whatever kind it
// is, also if it was taken by ZooKeeper clients. A lock that nobody wants, or
// that never was, is empty.
func Inspect(ctx context.Context, c *client.Client, lockPath string) (Info, error) {
	s := scan{path: lockPath, nodes: map[string]client.Node{}}
	for n, err := range c.Walk(ctx, lockPath) {
		if errors.Is(err, client.ErrNoNode) {
			return Info{Path: lockPath}, nil
		}
		if err != nil {
			return Info{Path: lockPath}, err
		}
		s.add(n)
	}
	return s.info(), nil
}

// Inspect shows holders and waiting line; see the function [Inspect].
func (f *folder) Inspect(ctx context.Context) (Info, error) { return Inspect(ctx, f.c, f.path) }

// scan is what a walk over a lock has found.
type scan struct {
	path  string
	nodes map[string]client.Node // by path
	names []string               // of the children
	slots []string               // of a semaphore
}

func (s *scan) add(n client.Node) {
	switch dir, name := path.Split(n.Path); dir {
	case s.path + "/":
		s.names = append(s.names, name)
	case slotsOf(s.path) + "/":
		s.slots = append(s.slots, name)
	default:
		return // the lock itself, or something below it that is none of its
	}
	s.nodes[n.Path] = n
}

func (s *scan) info() Info {
	q := queueOf(s.names)
	info := Info{Path: s.path, Kind: s.kind(q)}
	held := 0
	if info.Kind == KindSemaphore {
		info.Limit = limitIn(s.nodes[slotsOf(s.path)].Data)
		info.Holders = s.taken()
	} else {
		held = holders(q)
	}
	for i, e := range q {
		node := s.path + "/" + e.name
		p := party(node, s.nodes[node].Data, s.nodes[node].Stat)
		p.Holds = i < held
		if p.Holds {
			info.Holders = append(info.Holders, p)
		} else {
			info.Waiters = append(info.Waiters, p)
		}
	}
	info.Warnings = s.warnings(q, info)
	return info
}

// kind guesses from the names. A folder of slots says little if none is taken: a
// semaphore that was refused beside a lock of another kind has left it there.
// Entries of no kind in particular are those of foreign mutexes.
func (s *scan) kind(q []entry) Kind {
	_, folder := s.nodes[slotsOf(s.path)]
	k := kindAmong(q)
	switch {
	case len(s.slots) > 0, folder && k == "":
		return KindSemaphore
	case k == "" && len(q) > 0:
		return KindMutex
	default:
		return k
	}
}

// taken are the holders of slots, by their numbers.
func (s *scan) taken() []Party {
	var out []Party
	for _, name := range s.slots {
		if _, ok := slotOf(name); ok {
			n := s.nodes[slotsOf(s.path)+"/"+name]
			out = append(out, slotParty(n.Path, n.Data, n.Stat))
		}
	}
	slices.SortFunc(out, func(a, b Party) int { return a.Slot - b.Slot })
	return out
}

// warnings names what can let too many contenders in or block all of them.
func (s *scan) warnings(q []entry, info Info) []string {
	var out []string
	seen, kinds := map[Pattern]bool{}, map[Kind]bool{}
	for _, e := range q {
		seen[e.pattern] = true
		if k := kindOf(e.name); k != "" {
			kinds[k] = true
		}
		if k := s.nodes[s.path+"/"+e.name].Stat.Kind; k != client.Ephemeral && k != client.TTL {
			out = append(out, fmt.Sprintf("%s is not ephemeral: it stays until somebody deletes it", e.name))
		}
	}
	if seen[PatternKazoo] && len(seen) > 1 {
		out = append(out, "kazoo clients share this lock with others: unless they were told "+
			"extra_lock_patterns=('-lock-',) they do not wait for them")
	}
	if len(kinds) > 1 {
		out = append(out, "contenders for different kinds of locks stand in one queue: "+
			"they do not wait for each other as they should, and their tokens do not compare")
	}
	if info.Kind == KindSemaphore {
		out = append(out, s.slotWarnings(info)...)
	}
	return out
}

func (s *scan) slotWarnings(info Info) []string {
	var out []string
	if info.Limit == 0 {
		out = append(out, fmt.Sprintf("%s does not say the limit: nobody gets a slot until it is deleted or set", slotsOf(s.path)))
	} else if n := len(info.Holders); n > info.Limit {
		out = append(out, fmt.Sprintf("%d slots are taken, more than the limit of %d", n, info.Limit))
	}
	var strange []string
	for _, name := range s.slots {
		if _, ok := slotOf(name); !ok {
			strange = append(strange, name)
		}
	}
	if len(strange) > 0 {
		out = append(out, "not slots, and not counted: "+strings.Join(strange, " "))
	}
	return out
}
