// Package lock has a fair mutual-exclusion lock.
//
// # What it promises
//
// Contenders stand in a queue of znodes and get the lock in the order they
// joined it. Each acquisition yields a fencing token, larger than that of every
// earlier holder of the same lock: the zxid at which the holder's queue entry
// was created. An entry lives as long as its session, so a holder that dies
// frees the lock by itself. Leaving at any point, also by a context that ends
// while the answer to a request is lost, leaves no entry behind. Each release
// wakes one waiter.
//
// # What it does not
//
// It does not stop a paused process. A holder's session may expire while its
// process does not run; the next holder is then let in, and the first one goes
// on where it stood until it looks. Let the protected resource check the token
// (package fence and what is below it): then a late write is refused.
//
// The lock is not reentrant: Go has no thread identity. Taking a lock again in
// the same call chain is ErrDeadlock; [FromContext] finds the handle instead.
//
// # How to use it
//
//	m := lock.New(c, "/locks/nightly-report")
//	err := m.Do(ctx, func(ctx context.Context, h *lock.Handle) error {
//		return sqlfence.WithTx(ctx, db, "report", h.FencingToken(), func(tx *sql.Tx) error {
//			return writeReport(ctx, tx)
//		})
//	})
//
// # When it is lost
//
// [Handle.Context] is done and [Handle.Lost] is closed, on this client's own
// clock, connected or not: a safety margin before the earliest moment at which
// the session can have expired; or when the session ends otherwise; or when
// somebody deletes the queue entry. The holder hears of it before the next
// holder can, except for deliberate removal, which it is told of as soon as it
// happens. A lost handle stays lost.
//
// # How an operator sees it
//
// The entries are ephemeral sequential znodes named as Curator names them
// (_c_<uuid>-lock-<number>) below the lock's path, which is made of containers,
// so that empty folders go away. Their data is JSON: owner, since, labels. Java
// and Go clients share a lock with it, and kazoo ones with
// extra_lock_patterns=('-lock-',). [Mutex.Inspect] and `coordctl locks` show
// holder and waiters, also foreign ones.
package lock
