// Package fence keeps a former lock holder from doing harm. The lock gives out
// a token with every acquisition, larger than all before it; the resource
// remembers the largest it has seen and refuses smaller ones.
//
// # What it promises
//
// Once a resource has admitted a token it admits no smaller one of the same lock,
// so a holder that was paused (by the scheduler, a garbage collector, a virtual
// machine, a network) and has been succeeded cannot write any more. It need not
// know that it has lost the lock, and no clock is involved.
//
// A lock alone cannot do this: between the holder's last look at its lock and its
// write there is always room for another pause. Only the resource sees both
// holders, so only the resource can refuse the old one.
//
// A rightful holder writes as often as it likes under one token, unless a store
// is strict.
//
// # What it does not
//
// A token means something only in comparison with others of its lock. Tokens are
// commit positions of the whole cluster, so those of two locks can be compared as
// numbers, but that order says nothing about who holds what. A resource that is
// guarded by more than one lock needs a mark for each: [Gate.ForLock], and the
// option Lock of package sqlfence.
//
// A token tells an old holder from a newer one. It does not tell a repeated
// request from a new one: two attempts at the same payment under two tokens are
// both admitted. That is what a key for the operation is for (Once in package
// sqlfence).
//
// Until the newer holder has been at the resource the older one is admitted: the
// promise is about the order of writes, not about who holds the lock now.
//
// Grants that are shared (the readers of a read-write lock, the holders of a
// semaphore) hold at the same time with different tokens. Fence a semaphore by
// slot, and do not fence readers.
//
// # How to use it
//
// Check where you write, in the same step as the write: package sqlfence in the
// transaction of a database, httpfence and grpcfence in front of a service,
// boltfence for the marks of one process, [Gate] in memory and in tests.
//
//	err := lock.New(c, "/locks/report").Do(ctx, func(ctx context.Context, h *lock.Handle) error {
//		return sqlfence.WithTx(ctx, db, "report", h.FencingToken(), func(tx *sql.Tx) error {
//			return writeReport(ctx, tx)
//		})
//	})
//
// A program that `coordctl lock` has started finds its token with [FromEnv].
//
// # When the lock is lost
//
// The write is refused with a *[StaleError] as soon as a newer holder has been at
// the resource. It is final: stop, and do not repeat. Usually the context of the
// lock's handle has ended before that.
//
// # How an operator sees it
//
// The error names the resource and both tokens, and the token of a holder stands
// in `coordctl locks show`. Marks only ever rise. If a cluster is set up anew, with
// nothing of the old one in it, its tokens begin again below the marks and
// everything is refused: then, and when no holder of the old cluster runs any
// more, the marks have to be deleted.
//
// # Concurrency
//
// Every function and method may be called from any goroutine. The package reads
// the environment in [FromEnv] and touches nothing else outside the process.
package fence
