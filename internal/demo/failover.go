package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/lock"
)

// FailoverOptions are those of [Failover].
type FailoverOptions struct {
	Options
	Rounds int // how often the leader is killed
}

// Failover shows that a lock that was granted survives the leader that granted
// it, which is killed right after the answer. It returns nil only if no grant
// was lost and the database saw no two owners at once. It kills the servers of
// a cluster of its own, never those of Options.Cluster. Its layer is [Quorum];
// without it a lock is shown that one store keeps and tells another of later.
func Failover(ctx context.Context, o FailoverOptions) error {
	o.Cluster, o.more = Cluster{}, time.Duration(o.Rounds)*roundGrace
	if !o.has(Quorum) {
		return performBare(ctx, "failover", o.Options, naiveFailover)
	}
	return perform(ctx, "failover", o.Options, func(ctx context.Context, s *stage) error {
		ledger, err := s.startLedger(ctx)
		if err != nil {
			return err
		}
		r := failoverRun{stage: s, ledger: ledger, path: s.root + "/lock"}
		if r.admin, err = client.NewAdmin(s.cluster.Endpoints); err != nil {
			return err
		}
		s.atEnd(r.admin.Close)
		for i, who := range []string{"A", "B"} {
			if r.clients[i], err = s.as(ctx, who); err != nil {
				return err
			}
		}
		for i := range o.Rounds {
			if err := r.round(ctx, i); err != nil {
				return err
			}
		}
		return r.judge(ctx)
	})
}

// roundGrace is how much longer the demonstration may take for each round.
const roundGrace = 5 * time.Second

type failoverRun struct {
	*stage
	ledger  *ledger
	path    string
	admin   *client.Admin
	clients [2]*client.Client
	last    fence.Token
	rounds  int
	lost    int // grants that were acknowledged and forgotten
}

// round has one get the lock, kills the leader, and has the other try to get in.
func (r *failoverRun) round(ctx context.Context, i int) error {
	if err := r.own.whole(ctx, r.admin); err != nil {
		return err
	}
	leader, err := r.own.leader(ctx, r.admin)
	if err != nil {
		return err
	}
	r.rounds++
	names := [2]string{"A", "B"}
	me, other := i%2, 1-i%2
	h, err := r.lock(me, names[me]).Acquire(ctx)
	if err != nil {
		return err
	}
	if err := r.own.kill(ctx, leader); err != nil {
		return fmt.Errorf("kill %s: %w", serverName(leader), err)
	}
	r.say(names[me], "has the lock: token %s; at once %s, the leader, is killed (SIGKILL)", h.FencingToken(), serverName(leader))
	if err := r.work(ctx, h, names[me], func() error { return r.intrude(ctx, other, names[other]) }); err != nil {
		return err
	}
	next, err := r.lock(other, names[other]).Acquire(ctx)
	if err != nil {
		return err
	}
	if err := r.work(ctx, next, names[other], func() error { return nil }); err != nil {
		return err
	}
	r.say(names[other], "got the lock after it: token %s", next.FencingToken())
	return r.own.start(leader)
}

func (r *failoverRun) lock(i int, owner string) *lock.Mutex {
	return lock.New(r.clients[i], r.path, lock.Owner(owner))
}

// work enters what the lock protects, does f there, asks whether the lock is
// still held, and leaves.
func (r *failoverRun) work(ctx context.Context, h *lock.Handle, who string, f func() error) error {
	if h.FencingToken() <= r.last {
		return r.broken(ErrDoubleOwner, "token %s does not come after %s", h.FencingToken(), r.last)
	}
	r.last = h.FencingToken()
	id, err := r.ledger.enter(ctx, who, h.FencingToken())
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	if err := h.Verify(ctx); errors.Is(err, lock.ErrLost) {
		r.say(who, "its lock is gone: %v", err)
		r.lost++
	} else if err != nil {
		return err
	}
	if err := r.ledger.leave(ctx, id); err != nil {
		return err
	}
	if err := h.Release(ctx); err != nil && !errors.Is(err, lock.ErrLost) {
		return err
	}
	return nil
}

// intrude tries to get in while another holds the lock.
func (r *failoverRun) intrude(ctx context.Context, i int, who string) error {
	h, err := r.lock(i, who).TryAcquire(ctx)
	var busy *lock.BusyError
	if errors.As(err, &busy) {
		r.say(who, "is refused by the new leader: held by %s, token %s", busy.Holder.Owner, busy.Holder.Token)
		return nil
	}
	if err != nil {
		return err
	}
	r.say(who, "gets the lock, too: token %s", h.FencingToken())
	id, err := r.ledger.enter(ctx, who, h.FencingToken())
	if err != nil {
		return err
	}
	return errors.Join(r.ledger.leave(ctx, id), h.Release(ctx))
}

func (r *failoverRun) judge(ctx context.Context) error {
	overlaps, err := r.ledger.overlaps(ctx)
	if err != nil {
		return err
	}
	r.say("database", "%d leaders killed, %d grants lost, %d times two owners at once", r.rounds, r.lost, overlaps)
	switch {
	case overlaps > 0:
		return r.broken(ErrDoubleOwner, "two were in at the same time")
	case r.lost > 0:
		return r.broken(ErrGrantLost, "%d of %d grants did not survive the leader", r.lost, r.rounds)
	default:
		return r.kept("no lock was lost and there was never a second owner")
	}
}
