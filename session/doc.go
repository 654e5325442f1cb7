// Package session has the sessions of one replica as plain data: who is
// connected, which of his writes were done and what they answered, and which
// sessions have ended. It also has the leader's book of who was heard when.
//
// It decides nothing by itself: the state machine changes the [Table] as the
// log says, and the leader proposes what [Expiry] finds due.
//
// Two structures with two lives:
//
//   - [Table] is replicated. The same log gives the same table, the same
//     [Table.Digest] and the same bytes in a snapshot on each server.
//   - [Expiry] and [ExpiryClock] are the leader's alone, and gone with it.
//
// # Number lines
//
// Everything that enters the log has a number on a [Line]: a session's, or that
// of the server it came through. The next number is done and its answer is
// remembered; a smaller one gets the remembered answer; a larger one is a gap
// and does nothing. Copies of a write may therefore arrive twice, late, or in
// the wrong order, through whatever leader, and it is still done once and in
// its turn.
//
// # Concurrency
//
// Nothing here is safe for concurrent use: the caller locks. The one exception
// is an [Image], which is read by another goroutine while the table goes on.
// No clock, no goroutine, no randomness: time is an argument.
package session
