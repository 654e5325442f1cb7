package sqlfence

import (
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/coordd/coord/fence"
)

const (
	// DefaultTable is the table of marks where no [Table] is given.
	DefaultTable = "coord_fence"
	// DefaultOperationsTable is the table of [Once] where no [OperationsTable] is
	// given.
	DefaultOperationsTable = "coord_operations"
	// DefaultAttempts is how often [WithTx] and [Once] begin where no [Attempts]
	// is given.
	DefaultAttempts = 10
)

// ErrInvalidOption is returned when an option has a value that cannot work. The
// message names the option.
var ErrInvalidOption = errors.New("sqlfence: invalid option")

// Option changes where marks are kept and what is admitted. All users of one
// resource must give the same Table, Lock and Strict. An invalid value is
// reported by the call that uses it, as [ErrInvalidOption].
type Option func(*config)

// Dialect says what kind of database it is that the other arguments lead to.
// Without it it is PostgreSQL.
func Dialect(d Database) Option { return func(c *config) { c.database, c.dialect = d, d.dialect() } }

// Table names the table of marks, "name" or "schema.name", instead of
// [DefaultTable]. Each part is a plain identifier (letters, digits, underscore;
// at most 63 bytes) and is used as it is written, so capital letters count.
func Table(name string) Option { return func(c *config) { c.table = name } }

// OperationsTable names the table in which [Once] keeps the operations that were
// applied, instead of [DefaultOperationsTable]. The rules of [Table] hold, and
// the two must differ.
func OperationsTable(name string) Option { return func(c *config) { c.operations = name } }

// Lock says which lock the token comes from, usually by its path. The mark then
// belongs to the pair of resource and lock. Use it where more than one lock
// guards a resource: the tokens of two locks must not be compared.
func Lock(name string) Option { return func(c *config) { c.lock = name } }

// Strict refuses equal tokens too: each token is good for one committed
// transaction on the resource. Without it a holder writes as often as it likes.
func Strict() Option { return func(c *config) { c.strict = true } }

// MaxIdle makes the server end a transaction that was admitted and then sends
// nothing for d, as that of a stopped process does. Zero, the default, leaves the
// server's setting alone.
//
// In PostgreSQL the limit belongs to the transaction and d is rounded up to whole
// milliseconds. In MySQL it belongs to the connection, for which [WithTx], [Once]
// and [NewStore] set it and take it back; [Admit], which does not see the end of
// the transaction, refuses the option. There d is rounded up to whole seconds.
// SQLite has no server, and every function refuses it.
func MaxIdle(d time.Duration) Option { return func(c *config) { c.maxIdle = d } }

// TxOptions gives [WithTx], [Once] and [NewStore] an isolation level; nil is the
// database's default.
func TxOptions(o *sql.TxOptions) Option { return func(c *config) { c.txOptions = o } }

// Attempts bounds how often [WithTx], [Once] and [NewStore] begin the transaction
// when it fails to serialize, meets a deadlock or waits for too long. 1 means
// once.
func Attempts(n int) Option { return func(c *config) { c.attempts = n } }

// Classify says what errors of the database mean. f is asked first, with every
// error that a transaction ends with, also those of fn; where it answers
// [Unclear] the package judges by itself. f may be called from any goroutine.
//
// It is for drivers whose errors the package cannot read. Without it those of
// pgx, lib/pq, go-sql-driver/mysql and modernc.org/sqlite are understood. For
// mattn/go-sqlite3:
//
//	sqlfence.Classify(func(err error) sqlfence.Verdict {
//		var e sqlite3.Error
//		if errors.As(err, &e) && (e.Code == sqlite3.ErrBusy || e.Code == sqlite3.ErrLocked) {
//			return sqlfence.Repeatable
//		}
//		return sqlfence.Unclear
//	})
func Classify(f func(err error) Verdict) Option { return func(c *config) { c.classify = f } }

// config is what the options come to. Read-only once newConfig has returned it.
type config struct {
	table      string
	operations string
	lock       string
	strict     bool
	maxIdle    time.Duration
	txOptions  *sql.TxOptions
	attempts   int
	classify   func(error) Verdict
	database   Database
	dialect    dialect // of database; nil where that is none
}

// MaxIdle travels as a PostgreSQL setting, which is a signed 32-bit number of
// milliseconds.
const maxIdleLimit = (1<<31 - 1) * time.Millisecond

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

func newConfig(opts []Option) (config, error) {
	c := config{dialect: postgres{}, table: DefaultTable, operations: DefaultOperationsTable, attempts: DefaultAttempts}
	for _, opt := range opts {
		opt(&c)
	}
	return c, c.validate()
}

func (c *config) validate() error {
	if c.dialect == nil {
		return fmt.Errorf("%w: Dialect: there is no %v", ErrInvalidOption, c.database)
	}
	if c.maxIdle < 0 || c.maxIdle > maxIdleLimit {
		return fmt.Errorf("%w: MaxIdle %v: want 0 to %v", ErrInvalidOption, c.maxIdle, maxIdleLimit)
	}
	if c.attempts < 1 {
		return fmt.Errorf("%w: Attempts %d: want at least 1", ErrInvalidOption, c.attempts)
	}
	if err := fence.ValidateLock(c.lock); err != nil {
		return fmt.Errorf("%w: Lock: %w", ErrInvalidOption, err)
	}
	if c.table == c.operations {
		return fmt.Errorf("%w: Table and OperationsTable are both %q", ErrInvalidOption, c.table)
	}
	if err := validateTable("Table", c.table); err != nil {
		return err
	}
	if err := validateTable("OperationsTable", c.operations); err != nil {
		return err
	}
	return c.dialect.validate(c)
}

func validateTable(option, table string) error {
	parts := strings.Split(table, ".")
	if len(parts) > 2 {
		return fmt.Errorf("%w: %s %q: want name or schema.name", ErrInvalidOption, option, table)
	}
	for _, part := range parts {
		if !identifier.MatchString(part) {
			return fmt.Errorf("%w: %s %q: %q is no plain identifier", ErrInvalidOption, option, table, part)
		}
	}
	return nil
}

// quoted returns the name of a table as it stands in a statement, each part in
// the given quotes. The parts hold none, which validateTable has seen to.
func quoted(table, quote string) string {
	return quote + strings.ReplaceAll(table, ".", quote+"."+quote) + quote
}
