// Package barrier makes processes wait: for a sign that somebody gives
// ([Barrier]), or for one another ([Double]).
//
// # What it promises
//
// Barrier: while it is raised, [Barrier.Wait] waits. A waiter is released if the
// barrier was down at any moment since its Wait began, also if it has been raised
// again before the waiter could look, and also over reconnects and when the
// servers no longer know all changes. Each lowering wakes each waiter once, and
// nothing else wakes any.
//
// Double: n members begin together and end together, any number of times. A round
// opens in one transaction, which is done only if the entries of n waiting
// members, whose sessions live, are all there; so nobody passes before all n have
// entered, whatever happens to connections. Its members are those n, in the order
// in which they came; who comes later waits for the next round, and that opens
// only when all have left this one. A member that dies while it waits is not
// counted; one that dies inside has left. In a round each member is woken once to
// go in and, but for one, once when all have left.
//
// # What it does not
//
// It protects nothing: it gives no token, and a member that is paused may go on
// when the others have long left, because its session has expired. Where only one
// may do something, take a lock.
//
// A Barrier is no queue and no counter: of two lowerings that follow each other
// before anybody waits, the second is not kept for a later Wait.
//
// # How to use it
//
//	d := barrier.NewDouble(c, "/barriers/import", 5)
//	leave, err := d.Enter(ctx) // returns when five are there
//	if err != nil {
//		return err
//	}
//	loadPart()
//	return leave(ctx) // returns when five are done
//
// # When it is lost
//
// A Barrier is a persistent znode and does not depend on the session of whoever
// has raised it: a process that dies leaves it raised. A wait ends with the error
// of the session when that is over.
//
// The place of a member of a Double lives as long as its session. Enter returns
// an error that matches client.ErrSessionExpired when that is over, or ErrRemoved
// when somebody deletes the entry; so does the leave function. An Enter whose
// context ends takes its entry away, also if answers were lost.
//
// # How an operator sees it
//
// A raised Barrier is a znode whose data is a small JSON (owner, since); deleting
// it lowers the barrier. A Double is a container whose data is a small JSON:
// members (n), round (how many have opened) and last (the number of the last
// entry that belongs to the open round). Its children are the entries, ephemeral
// and sequential (_c_<uuid>-member-<number>): those up to last are inside, the
// others wait. Other children are left alone.
package barrier
