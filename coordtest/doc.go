// Package coordtest runs real coordd servers inside a Go test, on a network in
// memory, with switches for what goes wrong in production: a reply that is lost
// after the commit, a session that expires, a process that is paused, a link that
// is cut, a disk that stalls, a clock that is wrong, a server that dies.
//
//	func TestReportIsWrittenByOneHost(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			c := coordtest.Start(t)
//			worker, other := c.Dial(), c.Dial()
//			go writeReport(t.Context(), worker)
//			time.Sleep(5 * time.Second)
//			c.Partition(worker)
//			writeReport(t.Context(), other)
//			// and now look at who has written what
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
// network is not real. Their data is in a temporary directory, in memory if there
// is such a place. A cluster of one server starts within some hundredths of a
// second: start one for each test.
//
// # Switches
//
// Of a client: [Cluster.DropReply] loses the reply to a write that was done,
// [Cluster.Break] its connections; [Cluster.Partition] cuts it off, and it
// notices; [Cluster.Pause] stops its process, and it does not notice;
// [Cluster.Expire] ends its session at once.
//
// Of a server: [Cluster.Isolate], [Cluster.Cut], [Cluster.StallDisk],
// [Cluster.StepClock], [Cluster.Kill], [Cluster.Restart].
//
// What is disturbed is whole again when the function that the switch returns is
// called, at the latest at the end of the test.
//
// # Which one finds what
//
// Three mistakes that are in much locking code, each with the test that finds it
// and with the code that is right. They are in the files named, and run.
//
// Work goes on when the lock is lost (example_deaf_test.go). The function that
// holds the lock takes no notice of its context:
//
//	lock.New(c, "/locks/report").Do(ctx, func(context.Context, *lock.Handle) error {
//		for _, page := range pages {
//			write(page)
//		}
//		return nil
//	})
//
// Partition the client that holds it, let another one take it, and look whether
// the first one still writes. With Pause instead of Partition nothing in this
// process can help: then the resource must refuse the late write (package fence).
//
// A retry does the work twice (example_twice_test.go). An error does not say that
// nothing was done:
//
//	for range 3 {
//		if _, err = c.Create(ctx, "/orders/order-", data, client.WithSequential()); err == nil {
//			break
//		}
//	}
//
// Use DropReply before the call, and count the znodes with Paths afterwards. The
// cure is an id of the request (client.WithRequestID), or a session.
//
// An old znode is taken for one's own (example_exists_test.go). "There is one with
// my name" does not mean "I hold it":
//
//	_, err := c.Create(ctx, "/leader", name, client.WithEphemeral())
//	if errors.Is(err, client.ErrNodeExists) {
//		n, _ := c.Get(ctx, "/leader")
//		return string(n.Data) == name
//	}
//
// Partition the client for good, which is a crash, Dial another one of the same
// name, and wait for the timeout of the first session: two lead. The cure is to
// compare the znode's owner with the present session, or package election.
package coordtest
