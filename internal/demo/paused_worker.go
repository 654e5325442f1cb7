package demo

import (
	"context"
	"time"
)

// PausedWorker shows the reason for fencing: worker A holds the lock and is
// stopped for longer than its session lasts; B gets the lock and writes; A
// goes on and writes with its old token. It returns nil only if the database
// refused A and A's context was already cancelled. Its layer is [Fence].
func PausedWorker(ctx context.Context, o Options) error {
	return performBare(ctx, "paused-worker", o, func(ctx context.Context, s *stage) error {
		if err := s.setCluster(ctx); err != nil {
			return err
		}
		db, err := s.startDatabase(ctx, reportSchema)
		if err != nil {
			return err
		}
		s.say("database", "PostgreSQL is ready; fencing is %s", onOff(o.has(Fence)))
		p := pausedRun{stage: s, db: db}
		late, err := p.play(ctx)
		if err != nil {
			return err
		}
		return p.judge(ctx, late)
	})
}

// pausedLock has no name of its own for each run: it is what a reader of the
// timeline may look at with coordctl.
const pausedLock = "/demo/paused-worker"

// pausedRun is one run of the demonstration.
type pausedRun struct {
	*stage
	db *database
}

// play returns what came of A's late write.
func (r *pausedRun) play(ctx context.Context) (workerEvent, error) {
	write := command{Do: doWrite, Without: r.o.Without}
	a, err := r.holder(ctx, "A")
	if err != nil {
		return workerEvent{}, err
	}
	if err := a.pause(); err != nil {
		return workerEvent{}, err
	}
	r.say("A", "is stopped (SIGSTOP): it cannot notice that its %s session ends", shortSession)
	b, err := r.holder(ctx, "B")
	if err != nil {
		return workerEvent{}, err
	}
	fresh, err := b.do(ctx, write)
	if err != nil {
		return workerEvent{}, err
	}
	r.say("B", "writes with token %s: %s", fresh.Token, verdict(fresh))
	if err := a.resume(); err != nil {
		return workerEvent{}, err
	}
	r.say("A", "goes on (SIGCONT) and finishes what it was about to do")
	time.Sleep(200 * time.Millisecond) // A's work between waking up and writing
	late, err := a.do(ctx, write)
	if err != nil {
		return late, err
	}
	r.say("A", "writes with token %s: %s", late.Token, verdict(late))
	if late.ContextDone {
		r.say("A", "its context was cancelled before the write: %s", late.Cause)
	} else {
		r.say("A", "its context was NOT cancelled before the write")
	}
	return late, nil
}

// holder starts a worker that has the lock.
func (r *pausedRun) holder(ctx context.Context, name string) (*workerProcess, error) {
	w, err := r.worker(name, shortSession, r.db)
	if err != nil {
		return nil, err
	}
	e, err := w.do(ctx, command{Do: doAcquire, Lock: pausedLock})
	if err != nil {
		return nil, err
	}
	r.say(name, "holds %s: session %s, token %s", pausedLock, e.Session, e.Token)
	return w, nil
}

func (r *pausedRun) judge(ctx context.Context, late workerEvent) error {
	row, err := readReport(ctx, r.db)
	if err != nil {
		return err
	}
	r.say("database", "the row is by %s, token %s", row.Author, row.Token)
	switch {
	case row.Author != "B" || late.Event != eventRefused:
		return r.broken(ErrOldOverNew, "CORRUPTED: A's late write replaced B's")
	case !late.ContextDone:
		return r.broken(ErrNotTold, "the write was refused, but A had not been told")
	default:
		return r.kept("the database refused the late write, and A had been told")
	}
}

func verdict(e workerEvent) string {
	if e.Event == eventRefused {
		return "REFUSED, " + e.Detail
	}
	return "accepted"
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "OFF"
}
