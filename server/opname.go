package server

import "time"

// opName names what a request does, for metrics and logs.
type opName uint8

const (
	opNone opName = iota
	opCreate
	opDelete
	opSet
	opSetACL
	opCheck
	opMulti
	opSkip
	opClose
	opOpen
	opAttach
	opGet
	opExists
	opChildren
	opGetACL
	opWalk
	opSync
	opEphemerals
	opCount
	opPredecessor
	opWatch
	opUnwatch
	opAuth
	opMultiRead
	opSequence
	opReconfig
	opNames // how many there are
)

var opTexts = [opNames]string{
	opNone: "none", opCreate: "create", opDelete: "delete", opSet: "set", opSetACL: "set_acl",
	opCheck: "check", opMulti: "multi", opSkip: "skip", opClose: "close", opOpen: "open",
	opAttach: "attach", opGet: "get", opExists: "exists", opChildren: "children",
	opGetACL: "get_acl", opWalk: "walk", opSync: "sync", opEphemerals: "ephemerals",
	opCount: "count", opPredecessor: "predecessor", opWatch: "watch", opUnwatch: "unwatch",
	opAuth: "auth", opMultiRead: "multi_read", opSequence: "sequence", opReconfig: "reconfig",
}

// String is the label in metrics.
func (o opName) String() string {
	if int(o) < len(opTexts) {
		return opTexts[o]
	}
	return opTexts[opNone]
}

// stopwatch measures on the monotonic clock in plain numbers, which cost half
// of a time.Time and fit an item.
type stopwatch struct{ started time.Time }

func newStopwatch() stopwatch { return stopwatch{time.Now()} }

// now is nanoseconds since the stopwatch was made; never 0.
func (s stopwatch) now() int64 { return int64(time.Since(s.started)) | 1 }

// since is the time from a former now.
func (s stopwatch) since(start int64) time.Duration { return time.Duration(s.now() - start) }
