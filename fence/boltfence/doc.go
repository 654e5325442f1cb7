// Package boltfence is a [fence.Store] in one file, for a resource that lives in
// one process and outlives it: a service in front of files, a device, an HTTP
// handler without a database.
//
// # What it promises
//
// A mark that Admit has raised stays raised: it is on the disk before Admit
// returns, also if the process is killed the next moment. Marks are kept for each
// pair of resource and lock, never go down, and are never forgotten.
//
// # What it does not
//
// It does not guard the write that follows: Admit has returned by then. Package
// httpfence closes that gap inside one process; package sqlfence closes it
// wherever the data is in the same database as the marks.
//
// One process at a time has the file open. Services that run several times need
// a store that they share (package sqlfence).
//
// # How to use it
//
//	marks, err := boltfence.Open("/var/lib/reports/marks.db")
//	...
//	http.Handle("/reports/", httpfence.Require(marks, resourceOf)(reports))
//
// # When the lock is lost
//
// A token below the mark is a *fence.StaleError, for ever.
//
// # How an operator sees it
//
// The file is a bbolt database with one bucket, coord_fence: the key is resource
// and lock with a zero byte between them, the value the token as eight bytes, big
// end first. It may be copied while nobody has it open. An older copy must not be
// put back: it would let former holders in.
package boltfence
