// Package zkimport copies a subtree of a live ZooKeeper ensemble into a cluster,
// and compares the two afterwards. It reads the ensemble as any client of it
// would, and writes with package client.
//
// An import goes through three steps, of which only the last writes:
//
//   - [Look] reads the whole subtree, but not the data of its znodes: Stats, ACLs
//     and the counters that sequential names come from.
//   - [Survey.Plan] finds out what of it is in the cluster already, and what the
//     cluster could not take: a [Plan] names each such znode. One with faults or
//     conflicts is not carried out, so that a copy is never half of one for a
//     reason that could be known before.
//   - [Plan.Run] reads the data and writes, in transactions of many znodes,
//     parents before children, counters last.
//
// Each step can be done again at any time. A Run that was interrupted leaves
// whole znodes, and the next Plan has what was missing.
//
// What is copied: data, with the difference between null and empty, ACLs, the
// counters and quotas. What is not: ephemeral znodes, which end with their
// sessions; /zookeeper; and what the protocol does not show, namely which znodes
// are containers or have a TTL (they become persistent). Times and versions begin
// anew.
//
// The ensemble is not held still: an import is a copy of one moment only if
// nobody writes there meanwhile. [Survey.Verify] tells afterwards.
//
// A Source and a Progress are safe for concurrent use; a Survey and a Plan are for
// one caller at a time. No goroutine outlives the call that started it, but those
// of a Source, which end with Close.
package zkimport
