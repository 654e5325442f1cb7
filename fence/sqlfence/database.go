package sqlfence

import "fmt"

// Database is a kind of database. See [Dialect].
type Database int

const (
	// PostgreSQL 9.5 and later. The zero Database, and the default.
	PostgreSQL Database = iota
	// MySQL 5.7 and later and MariaDB 10.2 and later, with the engine InnoDB. The
	// tests run on MariaDB 10.11.
	MySQL
	// SQLite 3.37 and later, one file for all who share a resource: no ":memory:",
	// which each connection has for itself, and no file system of a network, whose
	// locks often do not lock.
	SQLite
)

// String returns the name of the database.
func (d Database) String() string {
	if d.known() {
		return [...]string{"PostgreSQL", "MySQL", "SQLite"}[d]
	}
	return fmt.Sprintf("Database(%d)", int(d))
}

func (d Database) known() bool { return d >= PostgreSQL && d <= SQLite }

// dialect returns what is special about the database, or nil.
func (d Database) dialect() dialect {
	switch d {
	case PostgreSQL:
		return postgres{}
	case MySQL:
		return mysql{}
	case SQLite:
		return sqlite{}
	default:
		return nil
	}
}
