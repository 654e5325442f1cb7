// Package cache keeps a copy of a subtree in this process, so that reading it
// costs no request.
//
// # What it promises
//
// Once it is synced the copy shows the subtree as it was at one transaction,
// whole: a transaction that changes several nodes is seen altogether or not at
// all. From there it moves on transaction by transaction and never back, also
// over reconnects: it resumes at the last transaction that it has. If the servers
// no longer know all changes since then, the subtree is read again beside the
// copy, which shows the old state until the new one is complete; then it takes
// its place in one step, and the differences are reported as changes.
//
// A large subtree is read in pages, at different transactions. The copy is not
// shown before the changes that happened meanwhile are in, too; what it shows has
// existed.
//
// [Cache.WaitZxid] waits until the copy contains a certain transaction: write,
// wait for the zxid of the write, read what was written.
//
// # What it does not
//
// The copy is behind the cluster by the time that an event takes to come, and by
// as long as the connection is broken: [Cache.Stale] says that. Decide nothing on
// it that needs the present state; read it, or check it in the transaction that
// writes ([client.OpCheck]).
//
// Several calls may see several states; [Cache.All] is one state.
//
// What this client may not read is not in the copy, and neither is what is below
// it; without data it may show that such a node was created. A change of an ACL in
// the subtree makes it be read again.
//
// # How to use it
//
//	c := cache.New(cl, "/config", cache.OnChange(func(ch cache.Change) { log.Println(ch.Type, ch.Node.Path) }))
//	go func() { errs <- c.Run(ctx) }()
//	if err := c.WaitSynced(ctx); err != nil {
//		return err
//	}
//	node, ok := c.Get("/config/limit")
//
// # When it is lost
//
// [Cache.Run] ends with its context, with the session, or with an error: what it
// has copied stays, and grows old. Running it again resumes. A root that does not
// exist is an empty copy, which fills when it is created.
//
// # How an operator sees it
//
// As a recursive watch of the session. The recipe writes nothing.
package cache
