package sqlfence_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/coordd/coord/fence/sqlfence"
)

// coded is an error as the drivers for PostgreSQL have it.
type coded string

func (c coded) Error() string    { return "server says " + string(c) }
func (c coded) SQLState() string { return string(c) }

// sqliteCode is an error as modernc.org/sqlite has it.
type sqliteCode int

func (c sqliteCode) Error() string { return fmt.Sprintf("SQLite says %d", int(c)) }
func (c sqliteCode) Code() int     { return int(c) }

// mysqlError is the error of the driver itself.
func mysqlError(number uint16, state string) error {
	err := &mysql.MySQLError{Number: number, Message: "the server says: so"}
	copy(err.SQLState[:], state)
	return err
}

// repeatables are errors by which a database asks for the transaction again.
var repeatables = map[sqlfence.Database][]error{
	sqlfence.PostgreSQL: {coded("40001"), coded("40P01"), coded("55P03")},
	sqlfence.MySQL: {
		mysqlError(1213, "40001"), mysqlError(1205, "HY000"), mysqlError(1020, "HY000"), mysqlError(1213, ""),
		mysqlError(3101, "40000"), errors.Join(errors.New("first"), mysqlError(1213, "40001")),
	},
	sqlfence.SQLite: {sqliteCode(5), sqliteCode(5 | 2<<8), sqliteCode(6), sqliteCode(6 | 1<<8)},
}

// finals are errors after which another attempt would not help.
var finals = map[sqlfence.Database][]error{
	sqlfence.PostgreSQL: {coded("23505"), coded("40003"), coded("08006"), coded("57014")},
	sqlfence.MySQL: {
		mysqlError(1062, "23000"), mysqlError(1317, "70100"), mysqlError(1053, "08S01"), mysqlError(1927, "70100"),
		mysql.ErrInvalidConn, errors.New("Error 1213"), errors.New("Error 1213 (40001) and no colon"),
		errors.New("Error x213 (40001): no"), errors.New("said Error 1213 (40001): not at the start"),
		errors.New("Error 99999 (40001): no such number"), errors.New("Error 1213 [40001]: other brackets"),
	},
	sqlfence.SQLite: {sqliteCode(19), sqliteCode(9), sqliteCode(10), sqliteCode(1), sqliteCode(13), coded("40001")},
}

// A driver whose errors the package cannot read.
type foreign struct{ busy bool }

func (foreign) Error() string { return "foreign" }

func TestClassifyIsAskedFirst(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		classify := sqlfence.Classify(func(err error) sqlfence.Verdict {
			var f foreign
			switch {
			case errors.As(err, &f) && f.busy:
				return sqlfence.Repeatable
			case errors.As(err, &f):
				return sqlfence.Refused
			default:
				return sqlfence.Unclear
			}
		})
		for want, failure := range map[int]error{1: foreign{}, 3: foreign{busy: true}} {
			runs := 0
			err := db.withTx(t.Context(), 34, func(*sql.Tx) error { runs++; return failure }, classify, sqlfence.Attempts(3))
			if runs != want || !errors.Is(err, failure) {
				t.Errorf("%#v: %d runs, %v, want %d", failure, runs, err, want)
			}
		}
		// What it has no word on is judged as without it.
		runs := 0
		last := repeatables[b.kind][0]
		err := db.withTx(t.Context(), 34, func(*sql.Tx) error { runs++; return last }, classify, sqlfence.Attempts(3))
		if runs != 3 || !errors.Is(err, last) {
			t.Errorf("%d runs, %v, want 3", runs, err)
		}
	})
}

func TestVerdictsAndDatabasesHaveNames(t *testing.T) {
	for want, value := range map[string]fmt.Stringer{
		"unclear": sqlfence.Unclear, "repeatable": sqlfence.Repeatable, "refused": sqlfence.Refused,
		"canceled": sqlfence.Canceled, "invalid verdict": sqlfence.Verdict(-1),
		"PostgreSQL": sqlfence.PostgreSQL, "MySQL": sqlfence.MySQL, "SQLite": sqlfence.SQLite, "Database(3)": sqlfence.Database(3),
	} {
		if got := value.String(); got != want {
			t.Errorf("String = %q, want %q", got, want)
		}
	}
}
