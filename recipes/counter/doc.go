// Package counter has a number that many processes add to.
//
// # What it promises
//
// Each [Counter.Add] that returns without an error is in the number exactly
// once, also if answers were lost, connections broke or leaders changed
// meanwhile; and its result is the value right behind it: no two calls share one,
// except where deltas of different signs make the number pass there again. An
// Add that fails with anything but client.ErrUnknownOutcome has changed nothing.
// [Counter.Get] sees every Add that returned before it began. A number that would
// not fit 64 bits is refused with an [OverflowError] and not wrapped.
//
// Adds that are made at the same time through one Counter share a write, so their
// rate is not bound to the time that one takes; share the Counter within a
// process. Processes that get in one another's way repeat their writes after
// random pauses.
//
// # What it does not
//
// An Add whose context ends, or whose session is over, while its answer is on the
// way has an unknown outcome: the error matches client.ErrUnknownOutcome.
// Repeating it may count twice. Where that matters keep the key of the operation
// with its effect, as package sqlfence does; a bare number cannot tell.
//
// Each Add is a write of the whole cluster. To count requests, add them up in the
// process and Add the sum once in a while.
//
// A number is not a fencing token: nobody holds anything.
//
// # How to use it
//
//	c := counter.New(cl, "/counters/invoices")
//	number, err := c.Add(ctx, 1)
//	if err != nil {
//		return err
//	}
//
// # When it is lost
//
// The znode is persistent: it does not depend on any session and stays until it
// is deleted. Then the counter is 0 again. It can be set by hand; Adds go on from
// there. Content that is no number is a [ContentError], and is left as it is.
//
// # How an operator sees it
//
// The data of the znode is the number in decimal digits: `coordctl get` shows it
// and `coordctl set` changes it. Its version counts writes, of which one may have
// done several Adds. Missing folders above it are made as containers.
package counter
