// Package member keeps the list of those who are there: a group of processes,
// each under an id of its own, with data that it publishes.
//
// # What it promises
//
// A member is an ephemeral znode named by its id, so it leaves the group by
// itself within its session's timeout after it dies. A connection that is lost
// for less than that makes no member leave. When a session expires although its
// process lives, the membership goes on by itself under a new session: the old
// znode and the new one change places in one transaction.
//
// A znode that an earlier session has made, also one of the same id in an earlier
// life of the same process, is never taken for one's own: it would vanish with
// that session. [Group.Join] waits until it has gone, or replaces it when told to
// with [TakeOver]. Of two live processes with one id the second gets a *TakenError
// that names the first, or, if it takes over, the first is told and stays away.
//
// [Group.Watch] yields complete lists, in the order of ids, one for each
// transaction that changed the group, in commit order and without gaps.
//
// # What it does not
//
// To be in the list is not to be alive: a process that died is in it until its
// session has expired, and one that cannot reach the cluster drops out of it while
// it goes on working. Whoever must not work then needs a lock with a fencing
// token (package lock), not a group. Two watchers see the same lists in the same
// order, but not at the same time.
//
// # How to use it
//
//	g := member.New(c, "/services/search")
//	m, err := g.Join(ctx, "search-3", []byte("10.0.3.7:9200"))
//	if err != nil {
//		return err
//	}
//	defer m.Leave(context.Background())
//
//	for list, err := range g.Watch(ctx) {
//		if err != nil {
//			return err
//		}
//		balancer.Use(list)
//	}
//
// # When it is lost
//
// With the session; then the member rejoins, for as long as it takes, and
// [Membership.Session] is 0 meanwhile. A znode that somebody deletes is made
// again at once. [Membership.Context] is done only when the membership is over
// for good: after [Membership.Leave], when the client or its session is closed,
// when another has taken the id (*TakenError), or when the cluster does not
// permit it.
//
// # How an operator sees it
//
// As children of the group's path, which is made of containers: `coordctl ls -l`
// lists them, `coordctl get` shows the data, which is just what the member has
// published, and the session behind each. Members of ZooKeeper clients are
// ephemeral children like ours. Children that are not ephemeral are not members.
package member
