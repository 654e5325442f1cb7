package demo

import (
	"context"
	"database/sql"
	"errors"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/sqlfence"
	"github.com/coordd/coord/recipes/lock"
	"github.com/coordd/coord/recipes/once"
)

// jobSchema has no constraint that would keep a second run out: that is for the
// layers.
const jobSchema = `
	CREATE TABLE invoice_run (
		id     bigserial PRIMARY KEY,
		period text NOT NULL,
		host   text NOT NULL,
		token  bigint NOT NULL
	);`

// jobResource is what its fence calls the invoices.
const jobResource = "invoices"

// jobOrder is what a host is told when a period begins.
type jobOrder struct {
	Path   string `json:"path"` // of the job
	Period string `json:"period"`
}

// runJob does a period of the job, unless another host has. A host whose session
// ends under way tries again under a new one, as once.Job.Run does.
func (w *worker) runJob(ctx context.Context, c command) (workerEvent, error) {
	o := Options{Without: c.Without}
	if !o.has(Once) {
		err := w.writeInvoices(ctx, w.db, c.Job.Period, 0)
		return workerEvent{Event: eventJobDone, Period: c.Job.Period, By: w.Name}, err
	}
	for {
		conn, err := w.session(ctx, c.SessionTimeout)
		if err != nil {
			return workerEvent{}, err
		}
		job := once.New(conn, c.Job.Path, once.Lock(lock.Owner(w.Name)))
		done, err := job.Do(ctx, c.Job.Period, func(ctx context.Context, t once.Turn) error { return w.turn(ctx, t, o) })
		if placeLost(err) || errors.Is(err, client.ErrUnknownOutcome) {
			if err := lookAgain(ctx); err != nil {
				return workerEvent{}, err
			}
			continue
		}
		return workerEvent{Event: eventJobDone, Period: done.Period, By: done.By, Token: done.Token, Repeated: done.Repeated}, err
	}
}

// turn is one attempt. It waits for a word before its transaction and after it,
// so that it can be killed at either place.
func (w *worker) turn(ctx context.Context, t once.Turn, o Options) error {
	if err := w.ask(workerEvent{Event: eventRunning, Period: t.Period, Token: t.Token}); err != nil {
		return err
	}
	repeated, err := w.applyInvoices(ctx, t, o)
	if err != nil {
		return err
	}
	return w.ask(workerEvent{Event: eventCommitted, Period: t.Period, Token: t.Token, Repeated: repeated})
}

// applyInvoices has the layer [Idempotency]. It says whether they had been
// written before.
func (w *worker) applyInvoices(ctx context.Context, t once.Turn, o Options) (repeated bool, err error) {
	if !o.has(Idempotency) {
		return false, sqlfence.WithTx(ctx, w.db, jobResource, t.Token, func(tx *sql.Tx) error {
			return w.writeInvoices(ctx, tx, t.Period, t.Token)
		})
	}
	op := sqlfence.Operation{ID: t.Key, Resource: jobResource, Token: t.Token}
	res, err := sqlfence.Once(ctx, w.db, op, func(tx *sql.Tx) ([]byte, error) {
		return nil, w.writeInvoices(ctx, tx, t.Period, t.Token)
	})
	return res.Repeated, err
}

// writer is a transaction, or the database without one.
type writer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// writeInvoices is the work.
func (w *worker) writeInvoices(ctx context.Context, db writer, period string, t fence.Token) error {
	_, err := db.ExecContext(ctx, `INSERT INTO invoice_run (period, host, token) VALUES ($1, $2, $3)`, period, w.Name, int64(t))
	return err
}
