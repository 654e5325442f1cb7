// Package fsm is the replicated state machine of coordd: it turns one committed
// log entry after another into changes of the tree (package znode) and of the
// session table (package session), and has the codecs of commands, entries and
// snapshots.
//
// It is deterministic: the same entries give the same state, the same results
// and the same bytes on every replica. Time and every random choice arrive
// inside a command; nothing here reads a clock, draws a random number or ranges
// over a map where the order could be seen. A refused command is a Result, an
// entry that cannot be decoded is an error and must stop the replica.
//
// Machine holds the one lock of a server's state. Entries are applied by one
// goroutine (Raft's); View may be called from any. Only raft.go knows about
// Raft.
package fsm
