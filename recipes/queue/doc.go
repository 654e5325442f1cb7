// Package queue has a queue of work: items that are put by some processes and
// taken, each by one at a time, by others.
//
// # What it promises
//
// Items come out by priority, then in the order in which they were put. Whoever
// takes one has a claim on it that lives as long as his session: if he dies, the
// item comes out again, at its old place. [Item.Done] takes it out of the queue in
// one transaction that checks the claim, so no item is lost, and none is taken out
// by somebody who has lost it. [Item.Deliveries] counts how often an item was
// given out, in the cluster; [MaxDeliveries] puts aside what nobody gets done.
//
// A Put adds its item once, also if answers are lost. With a [Key] it may be
// repeated by anybody at any time, until [Retention] after the item is done.
//
// Takers get items in the order in which they came. Of any number of idle ones a
// Put wakes one, and what a Take costs does not depend on the length of the queue:
// a process reads the names of the items once, and then only what has changed.
//
// # What it does not
//
// It delivers at least once, not exactly once: an item whose taker died after the
// work and before Done is given out again. Use the queue's path together with
// [Item.ID] as the key of what the work does (package sqlfence remembers keys), or
// make the work repeatable. An ID alone is not enough where keys are used: it is
// made of the key, so two queues can have it in common.
//
// It does not stop a paused process. Its claim may be lost while it does not run;
// another takes the item, and the first goes on where it stood until it looks. Let
// the resource check [Item.Token], which rises with every delivery of the item.
//
// An item is a znode, a Put and a delivery are writes of the whole cluster. This is
// for thousands of items and hundreds a second that must not be lost; data streams
// and millions of messages belong into a message broker. A taker that is first in
// the line and does not run makes the others wait until its session ends.
//
// # How to use it
//
//	q := queue.New(c, "/queues/orders", queue.MaxDeliveries(5))
//	id, err := q.Put(ctx, data, queue.Key("order-41"))
//
//	it, err := q.Take(ctx)
//	if err != nil {
//		return err
//	}
//	if err := work(it.Context(), it); err != nil { // the context ends if the claim is lost
//		return it.Return(ctx, time.Minute)
//	}
//	return it.Done(ctx)
//
// # When it is lost
//
// [Item.Context] is done, on this client's own clock, a tenth of the session's
// timeout before silence can give the item to another; or when the session ends
// otherwise; or when somebody deletes the claim. [Item.Done] then returns a
// [LostError] and changes nothing.
//
// # How an operator sees it
//
// Below the queue's path:
//
//	items/<priority>-<id>-<number>  an item; its data is what was put, its cversion
//	                                twice the number of its deliveries
//	items/claims/<item>             ephemeral: who works on it (JSON owner, since); or
//	                                with a time limit: it was returned with a delay
//	takers/_c_<uuid>-take-<number>  ephemeral: who waits for an item
//	keys/<id>                       a key that is remembered
//	dead/<item>                     an item that was given out too often; with a
//	                                number behind it if that name is taken
//
// The priority is in eight hexadecimal digits, 80000000 for 0, so that names sort
// in the order of the queue. Deleting an item by hand takes it out; if it has a
// key, delete that too. An item in dead is put again by putting its data and
// deleting it there. What is named otherwise is left alone.
package queue
