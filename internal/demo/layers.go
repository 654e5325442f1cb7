package demo

import (
	"context"
	"errors"
	"time"
)

// Layers shows what each of three layers is for: the lock keeps work from being
// done twice at once, the fence keeps a former holder's write from replacing a
// newer one, and idempotency keeps one operation from being applied twice. It
// plays a schedule against each and returns nil only if there was no anomaly.
// Its layers are [Lock], [Fence] and [Idempotency]; without one of them there is
// that one's anomaly and no other.
func Layers(ctx context.Context, o Options) error {
	return perform(ctx, "layers", o, func(ctx context.Context, s *stage) error {
		db, err := s.startDatabase(ctx, ledgerSchema+reportSchema+bankSchema)
		if err != nil {
			return err
		}
		r := layersRun{stage: s, db: db, path: s.root + "/lock"}
		if r.a, err = s.worker("A", longSession, db); err != nil {
			return err
		}
		if r.b, err = s.worker("B", longSession, db); err != nil {
			return err
		}
		s.say("layers", "lock %s, fence %s, idempotency %s", onOff(o.has(Lock)), onOff(o.has(Fence)), onOff(o.has(Idempotency)))
		for _, act := range []func(context.Context) error{r.sameWork, r.lateWrite, r.repeat} {
			if err := act(ctx); err != nil {
				return err
			}
		}
		return r.judge(ctx)
	})
}

type layersRun struct {
	*stage
	db   *database
	path string
	a, b *workerProcess
}

// enter lets a worker in: when it is its turn or, without the lock, at once. In
// both cases it has a token, and a later one has a larger one.
func (r *layersRun) enter(ctx context.Context, w *workerProcess, how string) (workerEvent, error) {
	return r.enterFor(ctx, w, how, longSession)
}

func (r *layersRun) enterFor(ctx context.Context, w *workerProcess, how string, session time.Duration) (workerEvent, error) {
	if !r.o.has(Lock) {
		how = doEnter
	}
	e, err := w.do(ctx, command{Do: how, Lock: r.path, SessionTimeout: session})
	switch {
	case err != nil:
	case e.Event == eventBusy:
		r.say(w.name, "does not get the lock, token %s has it, and leaves the work to that one", e.Token)
	default:
		r.say(w.name, "is in: token %s, session %s", e.Token, e.Session)
	}
	return e, err
}

// sameWork has both asked for one piece of work, the second while the first is
// at it.
func (r *layersRun) sameWork(ctx context.Context) error {
	r.say("client", "act 1, the lock: A and B are asked for the same hour of work")
	if _, err := r.enter(ctx, r.a, doTry); err != nil {
		return err
	}
	working := []*workerProcess{r.a}
	if err := r.order(ctx, r.a, doBegin, "begins the work"); err != nil {
		return err
	}
	e, err := r.enter(ctx, r.b, doTry)
	if err != nil {
		return err
	}
	if e.Event != eventBusy {
		working = append(working, r.b)
		if err := r.order(ctx, r.b, doBegin, "begins the work, too"); err != nil {
			return err
		}
	}
	for _, w := range working {
		if err := r.order(ctx, w, doEnd, "has done the work"); err != nil {
			return err
		}
		if err := r.order(ctx, w, doRelease, "leaves"); err != nil {
			return err
		}
	}
	return nil
}

func (r *layersRun) order(ctx context.Context, w *workerProcess, do, says string) error {
	_, err := w.do(ctx, command{Do: do, Lock: r.path})
	if err == nil {
		r.say(w.name, "%s", says)
	}
	return err
}

// lateWrite pauses A in front of its write until B has written.
func (r *layersRun) lateWrite(ctx context.Context) error {
	r.say("client", "act 2, the fence: A is paused in front of its write, and B writes")
	if _, err := r.enterFor(ctx, r.a, doAcquire, shortSession); err != nil {
		return err
	}
	if err := r.a.pause(); err != nil {
		return err
	}
	r.say("A", "is stopped (SIGSTOP)")
	if _, err := r.enter(ctx, r.b, doAcquire); err != nil {
		return err
	}
	if err := r.write(ctx, r.b); err != nil {
		return err
	}
	if err := r.a.resume(); err != nil {
		return err
	}
	r.say("A", "goes on (SIGCONT)")
	return r.write(ctx, r.a)
}

func (r *layersRun) write(ctx context.Context, w *workerProcess) error {
	e, err := w.do(ctx, command{Do: doWrite, Without: r.o.Without})
	if err == nil {
		r.say(w.name, "writes the report with token %s: %s", e.Token, verdict(e))
	}
	return err
}

// repeat has the client lose an answer and ask again, another worker.
func (r *layersRun) repeat(ctx context.Context) error {
	r.say("client", "act 3, idempotency: B pays, the answer is lost, and A is asked for the same")
	if err := r.pay(ctx, r.b); err != nil {
		return err
	}
	if err := r.order(ctx, r.b, doRelease, "leaves"); err != nil {
		return err
	}
	if _, err := r.enter(ctx, r.a, doAcquire); err != nil {
		return err
	}
	return r.pay(ctx, r.a)
}

// pay makes the payment of the wallet's story.
func (r *layersRun) pay(ctx context.Context, w *workerProcess) error {
	e, err := w.do(ctx, command{Do: doTransfer, Lock: r.path, Transfer: &payment, Without: r.o.Without})
	if err == nil {
		r.say(w.name, "%s, %d from %s to %s, token %s: %s", payment.ID, payment.Amount, payment.From, payment.To, e.Token, e.Receipt.Outcome)
	}
	return err
}

// judge asks the database for all three anomalies, whatever was left out.
func (r *layersRun) judge(ctx context.Context) error {
	worked, err := (&ledger{r.db.DB}).entries(ctx)
	if err != nil {
		return err
	}
	report, err := readReport(ctx, r.db)
	if err != nil {
		return err
	}
	money, err := readBooks(ctx, r.db.DB)
	if err != nil {
		return err
	}
	paid := (money.Bob - openingBalance) / payment.Amount
	r.say("database", "the work was done by %d, the report is by %s, payments made: %d", worked, report.Author, paid)
	var errs []error
	if worked != 1 {
		errs = append(errs, r.broken(ErrDuplicateWork, "%d did the work at the same time", worked))
	}
	if report.Author != "B" {
		errs = append(errs, r.broken(ErrOldOverNew, "A's late write replaced B's"))
	}
	if paid != 1 {
		errs = append(errs, r.broken(ErrLogicalRepeat, "payments asked for: 1, made: %d", paid))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return r.kept("no duplicate work, nothing old over new, no logical repeat")
}
