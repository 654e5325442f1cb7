// Package lock has a fair mutual-exclusion lock ([Mutex]), a fair read-write lock
// ([RWMutex]), a semaphore ([Semaphore]), and several locks taken as one
// ([Multi]). All give out a [Handle] with a fencing token.
//
// # What it promises
//
// Contenders stand in a queue of znodes and get the lock in the order they
// joined it: readers together with those right before and behind them, writers
// and holders of a mutex alone, holders of a semaphore as many as its limit. What
// they hold it by lives as long as its session, so a holder that dies frees the
// lock by itself. Leaving at any point, also by a context that ends while the
// answer to a request is lost, leaves no znode behind. Each release wakes those
// that get the lock, and no more than one other.
//
// Each acquisition yields a fencing token, larger than that of every earlier
// holder of the same lock. It is a zxid, and of what depends on the kind:
//
//   - of a Mutex, and of each lock of a Multi: the zxid at which the holder's
//     queue entry was created. There is one holder at a time, and entries get the
//     lock in the order in which they were created. Entries of one transaction
//     have one zxid, but never two in one queue.
//   - of an RWMutex: the zxid at which the holder wrote into its entry that it has
//     the lock. It does so before the acquisition returns, and when those that it
//     had to wait for have gone. The order in which entries were created would not
//     do: readers that are let in together come in in any order.
//   - of a Semaphore: the zxid at which the holder's slot was created. Tokens rise
//     over the whole semaphore and in each of its slots; compare those of one
//     [Handle.Slot] only, as holders of different slots hold at the same time.
//
// # What it does not
//
// It does not stop a paused process. A holder's session may expire while its
// process does not run; the next holder is then let in, and the first one goes
// on where it stood until it looks. Let the protected resource check the token
// (package fence and what is below it): then a late write is refused. [Efficiency]
// and [Correct] make you say which of the two you rely on.
//
// For a resource that cannot check tokens, [LockDelay] keeps the lock from
// everybody for some time after the session of a holder has ended by itself. That
// makes a late write less likely, for as long as the delay is longer than
// requests are under way; it does not make it impossible. The delay is none after
// a clean end: a Release, or the client's own Close.
//
// No lock is reentrant: Go has no thread identity. Taking a lock again in the
// same call chain is ErrDeadlock, also in another role; [FromContext] finds the
// handle instead.
//
// One path is for one kind of lock. Contenders of different kinds do not wait for
// each other as they should and their tokens do not compare; who sees that is
// told so by ErrOtherKind.
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
// To wait for a limited time, give a context with a deadline. [WaitLimit] is for
// those that must not stand in the queue longer even if their process hangs: the
// cluster itself takes them out. To let others see something about the holder,
// such as its address, use [Value] and [Handle.SetValue].
//
// # When it is lost
//
// [Handle.Context] is done and [Handle.Lost] is closed, on this client's own
// clock, connected or not: a safety margin before the earliest moment at which
// the session can have expired; or when the session ends otherwise; or when
// somebody deletes the znode by which the lock is held. The holder hears of it
// before the next holder can, except for deliberate removal, which it is told of
// as soon as it happens. A lost handle stays lost.
//
// Releasing a lost handle is right and harmless. It returns a *LostError and
// never touches the next holder. It does not end a lock-delay either: the znode
// that lingers belongs to no session any more, so the former holder cannot delete
// it. Only if the session lives on after all, because the handle was lost by the
// margin, does Release free the lock at once: the holder says itself that it has
// stopped. Without a Release that is done after the margin and the lock-delay.
//
// # How an operator sees it
//
// The entries are ephemeral sequential znodes named as Curator names them
// (_c_<uuid>-lock-<number>, for a read-write lock -__READ__ and -__WRIT__) below
// the lock's path, which is made of containers, so that empty folders go away.
// Their data is JSON: owner, since, labels, value, acquired. Java and Go clients
// share locks with it, and kazoo ones a mutex with
// extra_lock_patterns=('-lock-',). Do not mix Java and Go readers and writers
// where tokens are checked: Java clients write no grant down.
//
// A semaphore has a folder <path>/slots, whose data is the limit, and in it a
// znode for each taken slot, named by its number. A contender moves from the
// queue (_c_<uuid>-slot-<number>) to a slot in one transaction.
//
// A znode of kind TTL in the queue, or among the slots, is what an ended session
// has left for its lock-delay; deleting it ends the delay at once. [Inspect] and
// `coordctl locks` show holders and waiters, also foreign ones, and until when
// one lingers; [Deadlocks] shows sessions that wait for each other.
package lock
