package sqlfence

import (
	"context"
	"database/sql"
	"time"

	"github.com/coordd/coord/fence"
)

// dialect is what differs between the databases: the statements that decide,
// how a transaction begins, and what errors mean. The values are immutable.
type dialect interface {
	// validate refuses options that this database cannot keep.
	validate(c *config) error
	// migrate creates the tables that are missing and checks them all.
	migrate(ctx context.Context, db *sql.DB, c *config) error
	// begin starts a transaction. end is called when it is over, however it
	// ended.
	begin(ctx context.Context, db *sql.DB, c *config) (tx *sql.Tx, end func(), err error)
	// admit locks the mark, raises it to t unless it is in the way, and returns
	// the mark that was in the way, or 0 if t is admitted.
	admit(ctx context.Context, tx *sql.Tx, c *config, resource string, t fence.Token) (seen fence.Token, err error)
	// claim makes the row of an operation, still without its result, and returns
	// false if there is one already. It waits for a transaction that has made
	// one and has not ended.
	claim(ctx context.Context, tx *sql.Tx, c *config, op Operation) (bool, error)
	// statements returns what all databases do in the same way.
	statements(c *config) statements
	// verdict says what an error means.
	verdict(err error) Verdict
}

// statements go over the table of operations. In brackets are the arguments and
// the columns, in their order.
type statements struct {
	read   string // [id] [resource, token, has a result, result]
	finish string // [result, id]
	forget string // [age, number of rows]
	// age returns the age as forget takes it.
	age func(time.Duration) any
}
