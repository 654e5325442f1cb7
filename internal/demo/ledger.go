package demo

import (
	"context"
	"database/sql"

	"github.com/coordd/coord/fence"
)

const ledgerSchema = `
	CREATE TABLE tenure (
		id      bigserial PRIMARY KEY,
		who     text NOT NULL,
		token   bigint NOT NULL,
		entered timestamptz NOT NULL DEFAULT clock_timestamp(),
		gone    timestamptz
	);`

// ledger has the database write down who is in what a lock protects, by its own
// clock, so that it can judge whether two were in at once.
type ledger struct{ db *sql.DB }

func (s *stage) startLedger(ctx context.Context) (*ledger, error) {
	db, err := s.startDatabase(ctx, ledgerSchema)
	if err != nil {
		return nil, err
	}
	return &ledger{db.DB}, nil
}

func (l *ledger) enter(ctx context.Context, who string, t fence.Token) (id int64, err error) {
	return number(ctx, l.db, `INSERT INTO tenure (who, token) VALUES ($1, $2) RETURNING id`, who, int64(t))
}

func (l *ledger) leave(ctx context.Context, id int64) error {
	_, err := l.db.ExecContext(ctx, `UPDATE tenure SET gone = clock_timestamp() WHERE id = $1`, id)
	return err
}

// overlaps counts the pairs that were in at the same time.
func (l *ledger) overlaps(ctx context.Context) (int64, error) {
	return number(ctx, l.db, `SELECT count(*) FROM tenure a JOIN tenure b ON a.id < b.id
		AND b.entered < coalesce(a.gone, 'infinity') AND a.entered < coalesce(b.gone, 'infinity')`)
}

// entries counts how often somebody was in.
func (l *ledger) entries(ctx context.Context) (int64, error) {
	return number(ctx, l.db, `SELECT count(*) FROM tenure`)
}
