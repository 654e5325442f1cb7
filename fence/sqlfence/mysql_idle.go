package sqlfence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strconv"
	"time"
)

// resetTimeout bounds the statement that takes an idle limit back.
const resetTimeout = 5 * time.Second

// beginIdleLimited begins a transaction on a connection that the server ends
// when it hears nothing for c.maxIdle. The limit is one of the connection, not
// of the transaction, so end takes it back, and where that fails the connection
// is not used again.
func beginIdleLimited(ctx context.Context, db *sql.DB, c *config) (*sql.Tx, func(), error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	tx, err := limitIdle(ctx, conn, c)
	if err != nil {
		endIdleLimit(ctx, conn)
		return nil, nil, err
	}
	return tx, func() { endIdleLimit(ctx, conn) }, nil
}

// limitIdle keeps the setting as it was in a variable of the connection.
func limitIdle(ctx context.Context, conn *sql.Conn, c *config) (*sql.Tx, error) {
	seconds := int64((c.maxIdle + time.Second - 1) / time.Second)
	_, err := conn.ExecContext(ctx, "SET @coord_wait_timeout = @@SESSION.wait_timeout, SESSION wait_timeout = "+strconv.FormatInt(seconds, 10))
	if err != nil {
		return nil, fmt.Errorf("limiting the idle time: %w", err)
	}
	return conn.BeginTx(ctx, c.txOptions)
}

func endIdleLimit(ctx context.Context, conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resetTimeout)
	defer cancel()
	_, err := conn.ExecContext(ctx, "SET SESSION wait_timeout = COALESCE(@coord_wait_timeout, @@SESSION.wait_timeout), @coord_wait_timeout = NULL")
	if err != nil {
		// database/sql drops a connection that is called bad.
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	_ = conn.Close() // its error says that it was dropped
}
