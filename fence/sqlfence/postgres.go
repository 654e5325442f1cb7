package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/coordd/coord/fence"
)

// postgres speaks to PostgreSQL 9.5 and later.
type postgres struct{}

func (postgres) validate(*config) error { return nil }

func (postgres) verdict(err error) Verdict { return postgresVerdict(err) }

func (postgres) begin(ctx context.Context, db *sql.DB, c *config) (*sql.Tx, func(), error) {
	tx, err := db.BeginTx(ctx, c.txOptions)
	return tx, func() {}, err
}

func (p postgres) admit(ctx context.Context, tx *sql.Tx, c *config, resource string, t fence.Token) (fence.Token, error) {
	admitted, err := yields(tx.QueryRowContext(ctx, p.admitStatement(c, "$1", "$2", "$3"), resource, c.lock, int64(t)))
	if err != nil || admitted {
		return 0, err
	}
	// The refused statement has locked the row, so this is the mark that it
	// compared with.
	var seen int64
	err = tx.QueryRowContext(ctx,
		`SELECT token FROM `+quoted(c.table, `"`)+` WHERE resource = $1 AND lock = $2`, resource, c.lock).Scan(&seen)
	if err != nil {
		return 0, fmt.Errorf("reading the mark that refused it: %w", err)
	}
	return fence.Token(seen), nil
}

// admitStatement returns the one statement that decides, with three expressions
// for its values. It yields one row when the token is admitted, none when it is
// refused. In both cases the row of the mark is locked: PostgreSQL locks the
// conflicting row before it looks at WHERE.
func (p postgres) admitStatement(c *config, resource, lock, token string) string {
	return `INSERT INTO ` + quoted(c.table, `"`) + ` AS f (resource, lock, token) VALUES (` +
		resource + `, ` + lock + `, ` + token + `)
ON CONFLICT (resource, lock) DO UPDATE SET token = excluded.token, updated_at = now()
WHERE f.token ` + c.below() + ` excluded.token RETURNING ` + p.returning(c)
}

func (p postgres) claim(ctx context.Context, tx *sql.Tx, c *config, op Operation) (bool, error) {
	return yields(tx.QueryRowContext(ctx, p.claimStatement(c, "$1", "$2", "$3"), op.ID, op.Resource, int64(op.Token)))
}

// claimStatement yields one row when the operation is new and none when it is
// there.
func (p postgres) claimStatement(c *config, id, resource, token string) string {
	return `INSERT INTO ` + quoted(c.operations, `"`) + ` (id, resource, token) VALUES (` +
		id + `, ` + resource + `, ` + token + `)
ON CONFLICT (id) DO NOTHING RETURNING ` + p.returning(c)
}

// returning puts the idle limit into the same round trip as the answer.
func (postgres) returning(c *config) string {
	if c.maxIdle == 0 {
		return `''`
	}
	ms := (c.maxIdle + time.Millisecond - 1) / time.Millisecond
	return `set_config('idle_in_transaction_session_timeout', '` + strconv.FormatInt(int64(ms), 10) + `', true)`
}

func (postgres) statements(c *config) statements {
	table := quoted(c.operations, `"`)
	return statements{
		read:   `SELECT resource, token, result IS NOT NULL, result FROM ` + table + ` WHERE id = $1`,
		finish: `UPDATE ` + table + ` SET result = $1 WHERE id = $2`,
		forget: `DELETE FROM ` + table + ` WHERE id IN (
SELECT id FROM ` + table + ` WHERE created_at < now() - make_interval(secs => $1) ORDER BY created_at LIMIT $2)`,
		age: func(d time.Duration) any { return d.Seconds() },
	}
}

// yields tells whether a statement that returns one text or nothing has returned
// it.
func yields(row *sql.Row) (bool, error) {
	var ignored string
	err := row.Scan(&ignored)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
