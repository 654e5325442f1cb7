package lock

import (
	"cmp"
	"slices"
	"strings"

	"github.com/coordd/coord/znode"
)

// entry is one child of a lock that stands in its queue.
type entry struct {
	name    string
	number  uint64
	pattern Pattern
}

// Pattern is the family of clients whose naming a queue entry follows.
type Pattern string

// Patterns of names.
const (
	PatternCurator Pattern = "curator" // _c_<id>-lock- and the like, ours and Curator's
	PatternKazoo   Pattern = "kazoo"   // <id>__lock__, <id>__rlock__
	PatternPlain   Pattern = "plain"   // lock-
	PatternOther   Pattern = "other"   // anything else with a number
)

// parseEntry reads the name of a child. Every child that ends in a number stands
// in the queue, whoever made it: counting one too many makes us wait, one too
// few would let two in.
func parseEntry(name string) (entry, bool) {
	n, ok := znode.SequenceOf(name)
	if !ok {
		return entry{}, false
	}
	return entry{name: name, number: n, pattern: patternOf(strings.TrimRight(name, "0123456789"))}, true
}

func patternOf(head string) Pattern {
	switch {
	case strings.HasPrefix(head, "_c_") && roleOf(head) != "":
		return PatternCurator
	case strings.HasSuffix(head, "__lock__"), strings.HasSuffix(head, "__rlock__"):
		return PatternKazoo
	case head == "lock-":
		return PatternPlain
	default:
		return PatternOther
	}
}

// queueOf picks the entries out of a lock's children and puts them in the order
// of [client.Client.Predecessor]. Names do not sort by number: they begin with
// random parts, and numbers past ten digits are longer.
func queueOf(names []string) []entry {
	var q []entry
	for _, name := range names {
		if e, ok := parseEntry(name); ok {
			q = append(q, e)
		}
	}
	slices.SortFunc(q, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.number, b.number), strings.Compare(a.name, b.name))
	})
	return q
}

// role is what a contender wants to be. It is the word before the number in the
// name of its entry.
type role string

const (
	roleLock  role = "lock-"
	roleRead  role = "__READ__" // as Curator calls them
	roleWrite role = "__WRIT__"
	roleSlot  role = "slot-"
)

// roleOf is the role that a name speaks of, "" if none of ours. The name may
// have its number or not.
func roleOf(name string) role {
	head := strings.TrimRight(name, "0123456789")
	for _, r := range []role{roleRead, roleWrite, roleSlot, roleLock} {
		if strings.HasSuffix(head, "-"+string(r)) {
			return r
		}
	}
	return ""
}

// kindAmong is the kind of lock that the first entry of a known kind is of.
func kindAmong(q []entry) Kind {
	for _, e := range q {
		if k := kindOf(e.name); k != "" {
			return k
		}
	}
	return ""
}

// kindOf is the kind of lock that the name or path of an entry speaks of, ""
// when it could be any.
func kindOf(name string) Kind {
	switch roleOf(name) {
	case roleLock:
		return KindMutex
	case roleRead, roleWrite:
		return KindRW
	case roleSlot:
		return KindSemaphore
	default:
		return ""
	}
}
