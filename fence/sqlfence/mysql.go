package sqlfence

import (
	"context"
	"database/sql"
	"time"

	"github.com/coordd/coord/fence"
)

// mysql speaks to MySQL and MariaDB with InnoDB.
//
// How many rows an INSERT … ON DUPLICATE KEY UPDATE has affected depends on a
// flag of the connection (found or changed rows), so nothing here goes by that.
// What the statement met is handed out as its insert id instead: an update
// reports the value that LAST_INSERT_ID(expr) was given in it, and an insert
// into a table without AUTO_INCREMENT reports 0.
type mysql struct{}

func (mysql) validate(*config) error { return nil }

func (mysql) verdict(err error) Verdict { return mysqlVerdict(err) }

func (mysql) begin(ctx context.Context, db *sql.DB, c *config) (*sql.Tx, func(), error) {
	if c.maxIdle == 0 {
		tx, err := db.BeginTx(ctx, c.txOptions)
		return tx, func() {}, err
	}
	return beginIdleLimited(ctx, db, c)
}

// admit takes the exclusive lock of the mark's row in any case: it makes the row
// or meets it. Names and tokens are compared by the server in one statement, so
// there is no moment between the look and the change.
func (m mysql) admit(ctx context.Context, tx *sql.Tx, c *config, resource string, t fence.Token) (fence.Token, error) {
	token := int64(t)
	met, err := insertID(ctx, tx, m.admitStatement(c), []byte(resource), []byte(c.lock), token, token, token, token)
	if err != nil {
		return 0, err
	}
	before := fence.Token(met)
	if before < t || before == t && !c.strict {
		return 0, nil
	}
	return before, nil
}

// admitStatement has the parameters resource, lock, and four times the token. The
// time is assigned first because assignments see those before them.
func (mysql) admitStatement(c *config) string {
	below := "token " + c.below() + " ?"
	return "INSERT INTO " + quoted(c.table, "`") + " (resource, `lock`, token, updated_at) VALUES (?, ?, ?, UTC_TIMESTAMP(6))\n" +
		"ON DUPLICATE KEY UPDATE updated_at = IF(" + below + ", UTC_TIMESTAMP(6), updated_at), " +
		"token = IF(LAST_INSERT_ID(token) < ?, ?, token)"
}

func (m mysql) claim(ctx context.Context, tx *sql.Tx, c *config, op Operation) (bool, error) {
	met, err := insertID(ctx, tx, m.claimStatement(c), []byte(op.ID), []byte(op.Resource), int64(op.Token))
	return met == 0, err
}

// claimStatement reports 1 as the insert id where the row is there, and locks it.
func (mysql) claimStatement(c *config) string {
	return "INSERT INTO " + quoted(c.operations, "`") + " (id, resource, token, created_at) VALUES (?, ?, ?, UTC_TIMESTAMP(6))\n" +
		"ON DUPLICATE KEY UPDATE token = IF(LAST_INSERT_ID(1) = 1, token, token)"
}

// statements reads for update because the row that claim has met may be newer
// than what the transaction sees otherwise (at REPEATABLE READ, after an earlier
// read).
func (mysql) statements(c *config) statements {
	table := quoted(c.operations, "`")
	return statements{
		read:   "SELECT resource, token, result IS NOT NULL, result FROM " + table + " WHERE id = ? FOR UPDATE",
		finish: "UPDATE " + table + " SET result = ? WHERE id = ?",
		forget: "DELETE FROM " + table + " WHERE created_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY created_at, id LIMIT ?",
		age:    func(d time.Duration) any { return d.Microseconds() },
	}
}

func insertID(ctx context.Context, tx *sql.Tx, statement string, args ...any) (int64, error) {
	result, err := tx.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}
