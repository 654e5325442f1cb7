// Package fence keeps a former lock holder from doing harm. The lock gives out
// a token with every acquisition, larger than all before it; the resource
// remembers the largest it has seen and refuses smaller ones.
//
// A lock alone cannot do this: a holder that was paused (by the scheduler, a
// garbage collector, a virtual machine, a network) does not know that its
// session has ended until it looks, and between the look and the write there is
// always room for another pause. Only the resource sees both holders, so only
// the resource can refuse the old one.
//
// # What it does not do
//
// Compare tokens of one lock only. Tokens are commit positions of the whole
// cluster, so those of two locks can be compared as numbers, but that order
// says nothing about who holds what. A resource that is guarded by more than
// one lock needs a mark for each: [Gate.ForLock], and the option Lock of
// package sqlfence.
//
// A token tells an old holder from a newer one. It does not tell a repeated
// request from a new one: two attempts at the same payment under two tokens
// are both admitted. That is what a key for the operation is for.
//
// Grants that are shared (the readers of a read-write lock, the holders of a
// semaphore) hold at the same time with different tokens. Fence a semaphore by
// slot, and do not fence readers.
//
// # Concurrency
//
// Every function and method may be called from any goroutine. The package reads
// the environment in [FromEnv] and touches nothing else outside the process.
package fence
