package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/coordd/coord/fence"
)

// sqlite speaks to SQLite 3.37 and later.
//
// SQLite lets one transaction write at a time. The statements of admit and claim
// are writes also where they change nothing, so from there on the transaction
// has the database to itself, which is more than the lock of a row. As the first
// statement of a transaction they do what BEGIN IMMEDIATE does: they wait for
// their turn and see all that was committed before it. After a read they cannot
// (what was read may be old by then), and SQLite answers SQLITE_BUSY_SNAPSHOT
// or SQLITE_BUSY without waiting; the transaction has to begin again.
type sqlite struct{}

func (sqlite) validate(c *config) error {
	if c.maxIdle != 0 {
		return fmt.Errorf("%w: MaxIdle: SQLite has no server that could end a transaction", ErrInvalidOption)
	}
	return nil
}

func (sqlite) verdict(err error) Verdict { return sqliteVerdict(err) }

func (sqlite) begin(ctx context.Context, db *sql.DB, c *config) (*sql.Tx, func(), error) {
	tx, err := db.BeginTx(ctx, c.txOptions)
	return tx, func() {}, err
}

func (s sqlite) admit(ctx context.Context, tx *sql.Tx, c *config, resource string, t fence.Token) (fence.Token, error) {
	admitted, err := yields(tx.QueryRowContext(ctx, s.admitStatement(c), resource, c.lock, int64(t)))
	if err != nil || admitted {
		return 0, err
	}
	var seen int64
	err = tx.QueryRowContext(ctx,
		`SELECT token FROM `+quoted(c.table, `"`)+` WHERE resource = ?1 AND lock = ?2`, resource, c.lock).Scan(&seen)
	if err != nil {
		return 0, fmt.Errorf("reading the mark that refused it: %w", err)
	}
	return fence.Token(seen), nil
}

// sqliteNow is the time in UTC, as text that sorts by time.
const sqliteNow = `strftime('%Y-%m-%dT%H:%M:%fZ', 'now')`

// admitStatement yields a row when the token is admitted, none when it is not.
func (sqlite) admitStatement(c *config) string {
	return `INSERT INTO ` + quoted(c.table, `"`) + ` AS f (resource, lock, token) VALUES (?1, ?2, ?3)
ON CONFLICT (resource, lock) DO UPDATE SET token = excluded.token, updated_at = ` + sqliteNow + `
WHERE f.token ` + c.below() + ` excluded.token RETURNING ''`
}

func (s sqlite) claim(ctx context.Context, tx *sql.Tx, c *config, op Operation) (bool, error) {
	return yields(tx.QueryRowContext(ctx, s.claimStatement(c), op.ID, op.Resource, int64(op.Token)))
}

func (sqlite) claimStatement(c *config) string {
	return `INSERT INTO ` + quoted(c.operations, `"`) + ` (id, resource, token) VALUES (?1, ?2, ?3)
ON CONFLICT (id) DO NOTHING RETURNING ''`
}

func (sqlite) statements(c *config) statements {
	table := quoted(c.operations, `"`)
	return statements{
		read:   `SELECT resource, token, result IS NOT NULL, result FROM ` + table + ` WHERE id = ?1`,
		finish: `UPDATE ` + table + ` SET result = ?1 WHERE id = ?2`,
		forget: `DELETE FROM ` + table + ` WHERE rowid IN (SELECT rowid FROM ` + table + `
WHERE created_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?1) ORDER BY created_at LIMIT ?2)`,
		age: func(d time.Duration) any { return fmt.Sprintf("-%.3f seconds", d.Seconds()) },
	}
}

// The primary codes of SQLite's results that are told apart; extended ones have
// more in the higher bytes.
const (
	sqliteBusy       = 5
	sqliteLocked     = 6
	sqliteInterrupt  = 9
	sqliteFull       = 13
	sqliteConstraint = 19
)

// sqliteVerdict reads the code by the method that the errors of
// modernc.org/sqlite have. A commit that was refused leaves the transaction open
// in SQLite, and drivers roll it back, as database/sql wants it.
func sqliteVerdict(err error) Verdict {
	var coded interface{ Code() int }
	if !errors.As(err, &coded) {
		return Unclear
	}
	switch coded.Code() & 0xff {
	case sqliteBusy, sqliteLocked:
		return Repeatable
	case sqliteInterrupt:
		return Canceled
	case sqliteConstraint, sqliteFull:
		return Refused
	default:
		return Unclear
	}
}
