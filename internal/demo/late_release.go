package demo

import (
	"context"
	"errors"
	"fmt"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

// LateRelease shows that a release cannot take a lock from another: A holds it
// and is stopped for longer than its session lasts; B gets it; A goes on and
// releases, twice. It returns nil only if A was told both times that the lock
// was not its own any more, and B has it still. Its layer is [OwnerCheck].
func LateRelease(ctx context.Context, o Options) error {
	return perform(ctx, "late-release", o, func(ctx context.Context, s *stage) error {
		r := lateRun{stage: s, path: s.root + "/lock"}
		watcher, err := s.as(ctx, "late-release")
		if err != nil {
			return err
		}
		r.watcher = watcher
		a, held, err := r.lateRelease(ctx)
		if err != nil {
			return err
		}
		return r.judge(ctx, a, held)
	})
}

type lateRun struct {
	*stage
	path    string
	watcher *client.Client
	b       workerEvent // B's acquisition
}

// lateRelease returns A's acquisition, and whether A was told twice that it is
// not the owner.
func (r *lateRun) lateRelease(ctx context.Context) (a workerEvent, told bool, err error) {
	pa, err := r.worker("A", shortSession, nil)
	if err != nil {
		return a, false, err
	}
	if a, err = r.acquire(ctx, pa); err != nil {
		return a, false, err
	}
	if err := pa.pause(); err != nil {
		return a, false, err
	}
	r.say("A", "is stopped (SIGSTOP) for longer than its %s session lasts", shortSession)
	pb, err := r.worker("B", longSession, nil)
	if err != nil {
		return a, false, err
	}
	if r.b, err = r.acquire(ctx, pb); err != nil {
		return a, false, err
	}
	if err := pa.resume(); err != nil {
		return a, false, err
	}
	r.say("A", "goes on (SIGCONT) and releases in its `finally`, as it should")
	told, err = r.releaseTwice(ctx, pa, a)
	return a, told, err
}

func (r *lateRun) acquire(ctx context.Context, w *workerProcess) (workerEvent, error) {
	e, err := w.do(ctx, command{Do: doAcquire, Lock: r.path})
	if err == nil {
		r.say(w.name, "holds %s: session %s, token %s", r.path, e.Session, e.Token)
	}
	return e, err
}

// releaseTwice has A release, and release again as if the answer had been lost.
func (r *lateRun) releaseTwice(ctx context.Context, w *workerProcess, a workerEvent) (told bool, err error) {
	if !r.o.has(OwnerCheck) {
		e, err := w.do(ctx, command{Do: doReleaseByPath, Lock: r.path})
		if err != nil {
			return false, err
		}
		r.say("A", "deletes the lock's first entry, without a question whose it is: %s", e.Node)
		return false, nil
	}
	told = true
	for _, again := range []string{"", " again"} {
		e, err := w.do(ctx, command{Do: doRelease})
		if err != nil {
			return false, err
		}
		if e.Event != eventNotOwner {
			r.say("A", "releases%s: %s", again, e.Event)
			told = false
			continue
		}
		r.say("A", "releases%s: not owner (you held %s, holder is %s)", again, a.Token, r.b.Token)
	}
	return told, r.deleteAsA(ctx, a)
}

// deleteAsA sends the request that A's client would have sent, had it not
// looked at its clock: the cluster decides, and not A's good manners.
func (r *lateRun) deleteAsA(ctx context.Context, a workerEvent) error {
	_, err := r.watcher.Txn(ctx, client.OpDeleteNode(a.Node, client.Zxid(a.Token), 0))
	if !errors.Is(err, client.ErrNoNode) {
		return fmt.Errorf("%w: the delete of A's own entry, which has gone: %w", ErrUnexpected, err)
	}
	r.say("cluster", "a delete of A's entry %s: %v", a.Token, client.ErrNoNode)
	return nil
}

func (r *lateRun) judge(ctx context.Context, a workerEvent, told bool) error {
	info, err := lock.New(r.watcher, r.path).Inspect(ctx)
	if err != nil {
		return err
	}
	if len(info.Holders) != 1 || info.Holders[0].Token != r.b.Token {
		r.say("cluster", "the lock is free, while B works: whoever comes next gets it")
		return r.broken(ErrForeignRelease, "A's late release (token %s) took the lock from B (token %s)", a.Token, r.b.Token)
	}
	r.say("cluster", "B's entry is still there: token %s", info.Holders[0].Token)
	if !told {
		return r.broken(ErrNotTold, "A's release did not say that the lock was another's")
	}
	return r.kept("A was told that the lock is not its own, also the second time, and B has it still")
}
