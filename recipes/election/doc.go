// Package election elects one leader among candidates.
//
// # What it promises
//
// Candidates stand in the queue of a lock (package lock) and lead in the order
// they came. Each leadership has a fencing token, larger than that of every
// earlier one. A leader hears of the loss of its leadership on its own clock
// before the next leader is let in. Leadership hangs on a queue entry of the
// present session: one that an earlier session has left behind counts for nothing.
//
// When a leader dies the next one leads as soon as its session has expired and the
// lock-delay, if there is one, is over: after the session's timeout at most, and
// the moment that the cluster needs. A leader that resigns is followed at once.
//
// [Election.Run] never runs its function twice at a time: it campaigns again only
// after the function has returned, however long that takes, also when it ignores
// its context. It makes itself a new session when the old one has expired.
//
// A new leader makes itself known in the znode "leader", in a transaction that is
// only done while it leads. [Election.Observe] watches that one znode and yields
// every leader, what each proclaims, and the gaps between them, in commit order
// and without missing one; it costs the same with any number of candidates.
//
// # What it does not
//
// It does not stop a paused process, which believes for a moment after waking up
// that it still leads. Let the resource check the token: see package fence.
//
// Observers hear of a change after it has happened. A leader that was lost is
// shown until its session has expired; one whose queue entry an administrator
// deletes, until it hears of that and takes its own name down, another leads, or
// its session expires. Nobody who acts on what Observe says is safe from acting on
// a leader that is none any more: that is what the token in it is for.
//
// ZooKeeper clients can stand in the same queue and lead, but do not make
// themselves known: to observers that is a gap. [Election.Candidates] shows them.
//
// # How to use it
//
//	e := election.New(c, "/election/scheduler")
//	err := e.Run(ctx, []byte(address), func(ctx context.Context, l *election.Leadership) error {
//		return schedule(ctx, l.FencingToken()) // until ctx ends
//	})
//
// and those who need the leader:
//
//	for leader, err := range e.Observe(ctx) {
//		if err != nil {
//			return err
//		}
//		connectTo(leader) // leader.None() while there is none
//	}
//
// # When it is lost
//
// As a lock is: the context of the function is done and Leadership.Lost is
// closed, with a *lock.LostError as the cause; [Leadership.Proclaim] and every
// transaction with Leadership.Guard fail. Run waits for the function and
// campaigns again. A leader that gives up by itself, with [Leadership.Resign] or
// by returning nil from the function, goes to the end of the queue.
//
// # How an operator sees it
//
// The election's path is a lock: `coordctl locks` shows the leader and the
// candidates. Its child "leader" is an ephemeral znode with JSON in it: owner,
// since, node (the queue entry), token, value. Deleting the leader's queue entry
// takes the leadership away. Deleting "leader" does not: the leader puts it back.
package election
