// Package sqlfence checks fencing tokens inside the caller's own transaction, on
// PostgreSQL, MySQL, MariaDB and SQLite (see [Dialect]), and keeps operations from
// being applied twice. It works with drivers for database/sql and imports none.
//
// # What it promises
//
// [Admit] is one statement at the start of a transaction. It raises the mark of
// the resource to the caller's token, or refuses a token below the mark, and it
// keeps the mark locked until the transaction ends. So
//
//   - a newer holder waits for the older one's transaction before it goes on;
//   - an older holder is refused, also if it had begun before the newer one;
//   - a holder that has lost the lock cannot commit once a newer one has been
//     admitted: its transaction has ended by then, one way or the other;
//   - the first read after it sees what the holder before has committed.
//
// This holds at every isolation level of each database. Where a database answers
// a transaction that had to wait, or met a deadlock, with an error in place of
// its turn, [WithTx] begins again.
//
// [Once] applies an operation with a given ID once, however many attempts there
// are, under whatever tokens and at the same time, and returns the same result to
// each. The operation, its result and the caller's own writes are in one
// transaction: all of them stay, or none.
//
// # What it does not
//
// Only writes in the transaction of the Admit are guarded. [NewStore] raises and
// checks the mark in a transaction of its own, for resources that are not in
// the database.
//
// A holder that stops in the middle of a transaction keeps the mark locked, and
// the next holder waits for it: nothing can be wrong in the database, but
// nothing goes on either. [MaxIdle] bounds that wait. In SQLite it is the whole
// database that is locked, and nothing can bound it but the end of the process.
//
// A mark is as durable as a commit. A database that loses commits, by its
// settings or because a replica takes over that did not have them yet, loses
// marks with them.
//
// Compare tokens of one lock only: see package fence, and [Lock].
//
// # How to use it
//
// At the start of the service, and then under the lock:
//
//	err := sqlfence.Migrate(ctx, db)
//	...
//	err = m.Do(ctx, func(ctx context.Context, h *lock.Handle) error {
//		return sqlfence.WithTx(ctx, db, "report", h.FencingToken(), func(tx *sql.Tx) error {
//			_, err := tx.ExecContext(ctx, "UPDATE report SET ...")
//			return err
//		}, sqlfence.Lock("/locks/report"))
//	})
//
// For a request that may come twice:
//
//	op := sqlfence.Operation{ID: requestID, Resource: "wallet/7", Token: h.FencingToken()}
//	result, err := sqlfence.Once(ctx, db, op, func(tx *sql.Tx) ([]byte, error) { ... })
//
// The database is PostgreSQL unless [Dialect] says otherwise, and each call has to
// say it: one that forgets it is answered with an error of the database about a
// statement that is not in its language. Likewise each caller of a resource names
// the same [Lock] and [Table].
//
// SQLite does not wait by itself: open it with a busy timeout, as in
// "file:app.db?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)".
//
// # When the lock is lost
//
// The context of the lock's handle ends, and with it the transaction: it is
// rolled back, and the error has the reason as its cause. If the process did not
// run at that time the transaction may still be committed, unless the next holder
// has been admitted; after that it is a *fence.StaleError.
//
// # How an operator sees it
//
// The marks are rows of coord_fence: resource, lock, token, and updated_at, which
// is when a holder was last admitted. There is one for each resource and lock, and
// it must stay for as long as a holder with a lower token may come back. The
// operations are rows of coord_operations: id, resource, token, result,
// created_at; [Forget] deletes old ones. Times are UTC. In MySQL the names are
// bytes, to be read with CONVERT(resource USING utf8mb4).
//
// Who waits for a mark waits for a lock of the database, and stands where such
// waits are shown (pg_stat_activity, SHOW PROCESSLIST).
//
// # Concurrency
//
// All functions may be called from any goroutine, as far as the *sql.Tx is not
// shared.
package sqlfence
