// Package httpfence carries fencing tokens over HTTP: a client sends the token of
// the lock it holds, the service refuses one that is older than the newest it has
// seen.
//
// # What it promises
//
// A request that Require lets through carried a token that was not below the mark
// of its resource, and the mark is at least that token now. Inside one process no
// request of an older holder overlaps with one of a newer holder: the newer one
// cancels the context of the older, waits until it has ended, and only then
// begins. The mark is as durable as the store that keeps it: package boltfence
// for one process, sqlfence.NewStore for several.
//
// # What it does not
//
// A handler that ignores the context of its request makes the next holder wait.
// Where several processes serve one resource they share the marks through the
// store, but not the waiting: the write itself should be fenced then (package
// sqlfence).
//
// Tokens are no authentication: whoever may call the service can make one up.
//
// # How to use it
//
// The service:
//
//	marks, err := boltfence.Open("/var/lib/reports/marks.db")
//	...
//	guard := httpfence.Require(marks, func(r *http.Request) string { return r.URL.Path })
//	http.Handle("PUT /reports/{id}", guard(putReport))
//
// The client, inside of lock.Mutex.Do or with the context of a lock's handle:
//
//	hc := &http.Client{Transport: &httpfence.Transport{}}
//	resp, err := hc.Do(req.WithContext(ctx))
//	...
//	if err := httpfence.CheckResponse(resp); err != nil { // *fence.StaleError: stop, do not repeat
//
// # When the lock is lost
//
// The request's context is done, since it is that of the lock's handle; a request
// that is on its way is refused with 412 once a newer holder has been there.
//
// # How an operator sees it
//
// The headers Fencing-Token and Fencing-Lock stand in access logs. Refusals are
// problem documents (RFC 9457) with both tokens, 428 where the token is missing
// (RFC 6585), 412 where it is stale.
package httpfence
