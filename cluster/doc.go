// Package cluster makes one state machine (package fsm) out of several servers.
// It owns Raft: its stores on disk, its transport, the membership, and what
// surrounds it: forming a cluster, carrying proposals to the leader and packing
// them into log entries, linearizable reads, and the signs of life of sessions.
//
// What it is not: it knows no client protocol and no watches. A server above it
// submits commands and is told, through a Waiter or a fsm.Hook, what was
// applied; no call blocks for a write.
//
// The life of a write: Node.Submit puts it on its number line (forwarder), an
// offering carries it to the leader (forward_origin, forward_leader), whose
// batcher seals it into an entry; when the state machine of the server where it
// entered applies that entry, the waiter is told. If anything is lost on the
// way, the line is offered again; the state machine does each number once.
//
// A leadership is a reign: it begins when the NewEpoch of its Raft term is
// applied here, and everything that only a leader does lives and ends with it
// (batcher, liveness, keeper, reaper). What a leader says is believed only after
// a term round has shown that it still led (rounds).
//
// Concurrency: Node's methods may be called from any goroutine. Hooks and
// waiters run under the state machine's write lock. Locks are taken in the order
// machine, then one of ours; no lock of ours is held over a call to Raft, the
// network or the disk. Every goroutine is started by Run, or by something that
// Run waits for.
package cluster
