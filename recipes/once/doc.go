// Package once runs a periodic job on one of many hosts, once per period.
//
// # What it promises
//
// For each period at most one marker is made: it says that the period is done, by
// whom, with which fencing token, and when. It is made in one transaction with the
// proof that its maker still holds the job's lock, after the function has
// returned. While a period has no marker, every host that wants the period tries
// it, one at a time and never two; when one dies in the middle the next one starts
// the same period with the same key ([Turn].Key) and a larger token. So with a
// resource that checks the token and remembers the key (sqlfence.Once does both in
// one transaction) each period is applied exactly once, whoever dies when.
//
// A host whose clock is behind finds the marker of the period that it thinks is
// due. [Job.Run] also runs the newest period that was missed, and more of them
// with [CatchUp], so that an outage over the due time does not leave it out.
//
// # What it does not
//
// It does not keep the function from being started twice for one period: after a
// crash, a lost session or an error it is, with the same key. A function whose
// effects are not under the resource's check of token and key can have them twice.
//
// A host whose clock is ahead runs the period early. Periods are not run at the
// same time on several hosts, but one after the other in no certain order if an
// error makes one of them be tried again.
//
// # How to use it
//
//	job := once.New(c, "/jobs/invoices")
//	err := job.Run(ctx, once.Daily(2, 0, time.Local), func(ctx context.Context, t once.Turn) error {
//		op := sqlfence.Operation{ID: t.Key, Resource: "invoices", Token: t.Token}
//		_, err := sqlfence.Once(ctx, db, op, func(tx *sql.Tx) ([]byte, error) {
//			return nil, writeInvoices(ctx, tx, t.Period)
//		})
//		return err
//	})
//
// # When it is lost
//
// When the lock is lost under way the function's context is done, no marker is
// made, and the period is another host's to do, or this one's again. What the
// resource has applied by then stays applied: the next attempt comes with the same
// key and is told so. Run goes on under a new session.
//
// # How an operator sees it
//
// Below the job's path there are "lock", a lock as any other, with who runs it and
// who waits (`coordctl locks`), and "done" with one znode for each period, JSON in
// it: by, token, started, at. [Job.History] reads them. Making such a znode by
// hand makes the period count as done; deleting one makes it run again, with the
// same key. Only the newest are kept ([Keep]); the znode "done" says in its data
// up to which period they are gone, and those before it are not run again.
package once
