package demo

import (
	"context"
	"database/sql"
	"fmt"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/coordd/coord/fence/sqlfence"
	"github.com/coordd/coord/internal/pgtest"
)

// database is a PostgreSQL that lives as long as its stage.
type database struct {
	*sql.DB
	dsn string // for workers
}

// startDatabase runs a PostgreSQL with the tables of sqlfence and those of the
// given statements.
func (s *stage) startDatabase(ctx context.Context, schema string) (*database, error) {
	pg, err := pgtest.Start(ctx, pgtest.Options{})
	if err != nil {
		return nil, err
	}
	s.atEnd(pg.Close)
	d := &database{dsn: pg.DSN(pgtest.Database)}
	if d.DB, err = openDatabase(d.dsn); err != nil {
		return nil, err
	}
	s.atEnd(d.Close)
	if err := sqlfence.Migrate(ctx, d.DB); err != nil {
		return nil, fmt.Errorf("prepare the database: %w", err)
	}
	if _, err := d.ExecContext(ctx, schema); err != nil {
		return nil, fmt.Errorf("prepare the database: %w", err)
	}
	return d, nil
}

func openDatabase(dsn string) (*sql.DB, error) { return sql.Open("pgx", dsn) }

// number asks for one number.
func number(ctx context.Context, db *sql.DB, query string, args ...any) (n int64, err error) {
	err = db.QueryRowContext(ctx, query, args...).Scan(&n)
	return n, err
}
