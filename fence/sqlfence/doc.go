// Package sqlfence checks fencing tokens inside the caller's own transaction,
// on PostgreSQL. It works with every driver for database/sql and imports none.
//
// [Admit] is one statement at the start of a transaction. It raises the mark of
// the resource to the caller's token, or refuses a token below the mark, and it
// keeps the mark's row locked until the transaction ends. So
//
//   - a newer holder waits for the older one's transaction before it goes on;
//   - an older holder is refused, also if it had begun before the newer one;
//   - a holder that has lost the lock cannot commit once a newer one has been
//     admitted: its transaction has ended by then, one way or the other.
//
// This holds at every isolation level. Above READ COMMITTED a transaction that
// had to wait gets a serialization failure in place of its answer; [WithTx]
// begins again in that case.
//
// # What it does not do
//
// Only writes in the transaction of the Admit are guarded. [NewStore] raises and
// checks the mark in a transaction of its own, for resources that are not in
// the database.
//
// A holder that stops in the middle of a transaction keeps the row locked, and
// the next holder waits for it: nothing can be wrong in the database, but
// nothing goes on either. [MaxIdle] bounds that wait.
//
// Compare tokens of one lock only: see package fence, and [Lock].
//
// # Concurrency
//
// All functions may be called from any goroutine, as far as the *sql.Tx is not
// shared.
package sqlfence
