package demo

import (
	"context"
	"database/sql"
	"errors"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/sqlfence"
)

// reportSchema is one row that a newer holder's write must stand in.
const reportSchema = `
	CREATE TABLE report (id int PRIMARY KEY, author text NOT NULL, token bigint NOT NULL);
	INSERT INTO report VALUES (1, 'nobody', 0);`

// reportResource is what its fence calls the row.
const reportResource = "report"

// reportRow is the row of the report.
type reportRow struct {
	Author string
	Token  fence.Token
}

func readReport(ctx context.Context, db *database) (r reportRow, err error) {
	err = db.QueryRowContext(ctx, `SELECT author, token FROM report WHERE id = 1`).Scan(&r.Author, &r.Token)
	return r, err
}

// write writes the report whatever the lock's handle says, and tells both.
func (w *worker) write(ctx context.Context, c command) (workerEvent, error) {
	e := workerEvent{Token: w.token}
	if w.handle != nil && w.handle.Context().Err() != nil {
		e.ContextDone, e.Cause = true, context.Cause(w.handle.Context()).Error()
	}
	err := saveReport(ctx, w.db, reportRow{w.Name, w.token}, Options{Without: c.Without})
	switch {
	case err == nil:
		e.Event = eventWrote
	case errors.Is(err, fence.ErrStale):
		e.Event, e.Detail = eventRefused, err.Error()
	default:
		return e, err
	}
	return e, nil
}

// saveReport has the layer [Fence].
func saveReport(ctx context.Context, db *sql.DB, r reportRow, o Options) error {
	const update = `UPDATE report SET author = $1, token = $2 WHERE id = 1`
	if !o.has(Fence) {
		_, err := db.ExecContext(ctx, update, r.Author, int64(r.Token))
		return err
	}
	return sqlfence.WithTx(ctx, db, reportResource, r.Token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, update, r.Author, int64(r.Token))
		return err
	})
}
