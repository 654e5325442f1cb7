// Package coordtest runs real coordd servers inside a Go test, on a network in
// memory, with switches for what goes wrong in production: a reply that is lost
// after the commit, a session that expires, a process that is paused, a link that
// is cut, a disk that stalls, a clock that is wrong, a server that dies.
//
//	func TestReportIsWrittenOnce(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			c := coordtest.Start(t)
//			worker := c.Dial()
//			...
//			c.Expire(worker.Session())
//			...
//		})
//	}
//
// It runs in real time and inside a bubble of testing/synctest. There everything
// is in fake time, servers and clients: an hour of a test takes moments, a
// session expires exactly when it should, and a test that sleeps does not depend
// on how fast the machine is. Start the cluster inside of the bubble then. All
// ends with the test.
//
// The servers are those of coordd, with Raft, disk and all limits; only the
// network is not real. Their data is in a temporary directory.
package coordtest
