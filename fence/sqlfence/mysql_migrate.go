package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/coordd/coord/fence"
)

// migrate looks before it creates, because the right to create is not needed
// where there is nothing to do. Two that create at once are put in order by the
// server.
func (m mysql) migrate(ctx context.Context, db *sql.DB, c *config) error {
	for _, t := range []struct {
		name, create, use, key, texts string
	}{
		{c.table, m.createMarks(c), m.useMarks(c), "resource,lock", "resource,lock"},
		{c.operations, m.createOperations(c), m.useOperations(c), "id", "id,resource"},
	} {
		if err := m.migrateTable(ctx, db, t.name, t.create); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if err := m.check(ctx, db, t.name, t.use, t.key, t.texts); err != nil {
			return fmt.Errorf("%s: the table cannot be used: %w", t.name, err)
		}
	}
	return nil
}

func (m mysql) migrateTable(ctx context.Context, db *sql.DB, table, create string) error {
	_, err := m.engine(ctx, db, table)
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	_, err = db.ExecContext(ctx, create)
	return err
}

// check finds missing columns and rights by having the server plan the
// statement, and looks for what the statement would not miss: without the key it
// admits everything, and other engines know no transactions.
func (m mysql) check(ctx context.Context, db *sql.DB, table, use, key, texts string) error {
	rows, err := db.QueryContext(ctx, "EXPLAIN "+use)
	if err != nil {
		return err
	}
	if err := rows.Close(); err != nil {
		return err
	}
	engine, err := m.engine(ctx, db, table)
	if err != nil {
		return err
	}
	if !strings.EqualFold(engine, "InnoDB") {
		return fmt.Errorf("its engine is %s, not InnoDB", engine)
	}
	unique, err := m.uniqueKeys(ctx, db, table)
	if err != nil {
		return err
	}
	if want := "PRIMARY(" + key + ")"; unique != want {
		return fmt.Errorf("its unique keys are %q, not %q", unique, want)
	}
	return m.checkTexts(ctx, db, table, texts)
}

// checkTexts wants columns of bytes, in which no two names are the same to some
// language, and long enough, because a server that is not strict shortens what
// does not fit.
func (mysql) checkTexts(ctx context.Context, db *sql.DB, table, columns string) error {
	schema, name := names(table)
	var others string
	err := db.QueryRowContext(ctx, `SELECT COALESCE(GROUP_CONCAT(column_name, ' ', column_type), '') FROM information_schema.columns`+named+`
AND FIND_IN_SET(column_name, ?) AND NOT (data_type = 'varbinary' AND character_maximum_length >= ?)`,
		schema, name, columns, fence.MaxNameBytes).Scan(&others)
	if err == nil && others != "" {
		err = fmt.Errorf("its columns do not hold names of any %d bytes: %s", fence.MaxNameBytes, others)
	}
	return err
}

// named selects a table of information_schema by name or schema.name.
const named = " WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?"

func names(table string) (schema any, name string) {
	if schema, name, ok := strings.Cut(table, "."); ok {
		return schema, name
	}
	return nil, table
}

// engine returns sql.ErrNoRows where the table is not there, or not for us.
func (mysql) engine(ctx context.Context, db *sql.DB, table string) (engine string, err error) {
	schema, name := names(table)
	err = db.QueryRowContext(ctx, "SELECT COALESCE(engine, table_type) FROM information_schema.tables"+named, schema, name).Scan(&engine)
	return engine, err
}

// uniqueKeys returns all unique keys as "PRIMARY(resource,lock)". A key over the
// beginnings of names says so in the lengths, which are added.
func (mysql) uniqueKeys(ctx context.Context, db *sql.DB, table string) (keys string, err error) {
	schema, name := names(table)
	err = db.QueryRowContext(ctx, `SELECT COALESCE(GROUP_CONCAT(k ORDER BY k), '') FROM (
SELECT CONCAT(index_name, '(', GROUP_CONCAT(column_name, COALESCE(CONCAT(':', sub_part), '') ORDER BY seq_in_index), ')') AS k
FROM information_schema.statistics`+named+` AND non_unique = 0 GROUP BY index_name) AS unique_keys`, schema, name).Scan(&keys)
	return keys, err
}

// createMarks stores names as bytes: that is how they compare, and two of the
// longest fit into a key of InnoDB, which holds 3072 bytes (as characters each
// byte would count fourfold). To read them: CONVERT(resource USING utf8mb4).
func (mysql) createMarks(c *config) string {
	return "CREATE TABLE IF NOT EXISTS " + quoted(c.table, "`") + " (\n" +
		"	resource   VARBINARY(1024) NOT NULL,\n" +
		"	`lock`     VARBINARY(1024) NOT NULL,\n" +
		"	token      BIGINT NOT NULL CHECK (token > 0),\n" +
		"	updated_at DATETIME(6) NOT NULL COMMENT 'UTC',\n" +
		"	PRIMARY KEY (resource, `lock`)\n" +
		") ENGINE = InnoDB ROW_FORMAT = DYNAMIC"
}

func (mysql) createOperations(c *config) string {
	return "CREATE TABLE IF NOT EXISTS " + quoted(c.operations, "`") + " (\n" +
		"	id         VARBINARY(1024) NOT NULL PRIMARY KEY,\n" +
		"	resource   VARBINARY(1024) NOT NULL,\n" +
		"	token      BIGINT NOT NULL CHECK (token >= 0),\n" +
		"	result     MEDIUMBLOB,\n" +
		"	created_at DATETIME(6) NOT NULL COMMENT 'UTC',\n" +
		"	KEY (created_at)\n" +
		") ENGINE = InnoDB ROW_FORMAT = DYNAMIC"
}

// useMarks and useOperations are the statements of admit and claim with values.
func (m mysql) useMarks(c *config) string {
	return fill(m.admitStatement(c), "'r'", "''", "1", "1", "1", "1")
}

func (m mysql) useOperations(c *config) string { return fill(m.claimStatement(c), "'o'", "''", "1") }

// fill puts values in the place of a statement's parameters.
func fill(statement string, values ...string) string {
	for _, value := range values {
		statement = strings.Replace(statement, "?", value, 1)
	}
	return statement
}
