// Package client is the Go client of a coordd cluster.
//
// [Dial] opens a session and keeps it over any of the cluster's servers: when a
// connection is lost the client attaches the session at another server and
// offers its unanswered writes there again, in order. The cluster recognises
// what it has already done, so a write is applied exactly once and the caller
// sees a delay, not an error, for as long as the session lives.
//
// # Liveness
//
// A session lives until nothing was heard from its client for its timeout. The
// client counts that time from the moment it sent the newest heartbeat that
// the cluster has answered, which is never later than the moment the cluster
// counts from; so [Session.Deadline] never lies behind the end that the cluster
// sees by silence. It is measured on a clock that also runs while the machine
// sleeps. At the deadline the session is over here too, connected or not:
// [Session.Context] is done and blocked calls return. What no client can do is
// act while its process does not run: after a pause the deadline is noticed
// when the process runs again. Fencing tokens are for that (package fence).
//
// # Contexts
//
// A context bounds one call and never the life of a session. A write whose
// context ends after it was sent returns at once with an error that matches the
// context's error and [ErrUnknownOutcome]; the client withdraws it in the
// background, so that it either was done already or never will be.
//
// # Reads
//
// Reads are linearizable unless asked otherwise ([WithReads], [Mode]). No read
// shows less than this client has seen before, whatever its mode. Reads do not
// wait for writes of the same client that are still unanswered, except in mode
// [ReadSession], which keeps ZooKeeper's order.
//
// # Concurrency
//
// All methods may be called from any goroutine. Calls made at the same time
// share messages, so many goroutines over one Client are the fast way to use
// it. Callbacks ([WithStateListener], [Client.WriteAsync], [Client.GetAsync])
// must not block.
package client
