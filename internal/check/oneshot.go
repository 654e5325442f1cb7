package check

import (
	"strings"
)

// What a watch that fires once is for; the Type of an Armed record. One for a znode
// that was there tells its change and its end, one for a znode that was not its
// beginning, one for children also the end of the parent.
const (
	ForData     = "data"
	ForCreation = "creation"
	ForChildren = "children"
)

// checkOneShots holds each watch that fires once to the changes that are known: none
// may be shown before the watch has fired that it is for, and none may be missing
// when all is at rest.
func checkOneShots(v *view) {
	armed := map[int]*Record{}
	var order []int
	ended := map[int]*Record{}
	var settled *Record
	for i := range v.all {
		r := &v.all[i]
		switch r.Kind {
		case Armed:
			armed[r.N] = r
			order = append(order, r.N)
		case Fired, Unwatch:
			if armed[r.Watch] != nil {
				ended[r.Watch] = r
			}
		case Settled:
			settled = r
		default:
		}
	}
	if len(armed) == 0 {
		return
	}
	paths := changesFor(v)
	for _, n := range order {
		a, end := armed[n], ended[n]
		if end == nil || settled != nil && end.N > settled.N {
			end = settled
		}
		if end == nil {
			continue
		}
		changes := paths[watchKey{a.Path, a.Type}]
		at := firstBehind(changes, a.Zxid)
		if at == len(changes) || changes[at].zxid > end.Zxid {
			continue
		}
		c := changes[at]
		v.report(RuleWatch, a.Path, append([]Record{*a, *end}, c.records...), "the watch of %s for %s does not tell what %s has %s before %s is shown", a.Client, a.Type, c.zxid, c.typ, end.Zxid)
	}
}

// watchKey is what a watch that fires once is set at, and for.
type watchKey struct{ path, typ string }

// changesFor are the known changes that fire each watch, in their order.
func changesFor(v *view) map[watchKey][]change {
	out := map[watchKey][]change{}
	for _, c := range v.known {
		own, parent := ForData, ""
		switch c.typ {
		case typeCreated:
			own, parent = ForCreation, parentOf(c.path)
		case typeDeleted:
			parent = parentOf(c.path)
			key := watchKey{c.path, ForChildren}
			out[key] = append(out[key], c)
		}
		key := watchKey{c.path, own}
		out[key] = append(out[key], c)
		if parent != "" {
			key := watchKey{parent, ForChildren}
			out[key] = append(out[key], c)
		}
	}
	return out
}

// parentOf is the path above, "" of the root.
func parentOf(path string) string {
	switch at := strings.LastIndexByte(path, '/'); {
	case at > 0:
		return path[:at]
	case path == "/":
		return ""
	default:
		return "/"
	}
}
