package sqlfence_test

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"

	"github.com/coordd/coord/fence/sqlfence"
)

func TestMigrateMayRunManyTimesAtOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.empty(t)
		var wg sync.WaitGroup
		for range 12 {
			wg.Go(func() {
				if err := sqlfence.Migrate(context.Background(), db.DB, db.opts(nil)...); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := db.store().Admit(t.Context(), "r", 41); err != nil {
			t.Fatal(err)
		}
		if err := db.migrate(t); err != nil {
			t.Error(err)
		}
		if got := db.number(t, "SELECT token FROM coord_fence"); got != 41 {
			t.Errorf("the mark is %d after another Migrate, want 41", got)
		}
	})
}

func TestMigrateTakesTablesInASchema(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.empty(t)
		schema := db.schema(t)
		if b.kind != sqlfence.SQLite { // which has no other without attaching one
			schema = "Guard_" + schema
		}
		tables := []sqlfence.Option{sqlfence.Table(schema + ".Marks"), sqlfence.OperationsTable(schema + ".Done")}
		if b.kind != sqlfence.SQLite {
			if err := db.migrate(t, tables...); err == nil {
				t.Error("the schema does not exist, want an error")
			}
			exec(t, db, "CREATE SCHEMA "+db.quoted(schema))
		}
		for range 2 {
			if err := db.migrate(t, tables...); err != nil {
				t.Fatal(err)
			}
		}
		op := sqlfence.Operation{ID: "o", Resource: "r", Token: 41}
		if _, err := db.once(t.Context(), op, func(*sql.Tx) ([]byte, error) { return nil, nil }, tables...); err != nil {
			t.Error(err)
		}
		for _, table := range []string{".Marks", ".Done"} {
			if got := db.number(t, "SELECT token FROM "+db.quoted(schema+table)); got != 41 {
				t.Errorf("%s: the token is %d, want 41", table, got)
			}
		}
	})
}

func marksOfMySQL(name, keys, engine string) string {
	return "CREATE TABLE coord_fence (resource " + name + ", `lock` " + name + ", token bigint, updated_at datetime(6)" + keys + ") ENGINE=" + engine
}

const operationsOfMySQL = "CREATE TABLE coord_operations (id varbinary(1024) PRIMARY KEY, resource varbinary(1024), token bigint, result blob, created_at datetime(6)) ENGINE=InnoDB"

// otherTables are tables of the right name that cannot do what is needed, by
// what is said of them.
var otherTables = map[sqlfence.Database]map[string]string{
	sqlfence.PostgreSQL: {
		"does not exist":   "CREATE TABLE coord_fence (resource text PRIMARY KEY, token bigint)",
		"no unique":        "CREATE TABLE coord_fence (resource text, lock text, token bigint, updated_at timestamptz)",
		"coord_operations": "CREATE TABLE coord_operations (id text, resource text, token bigint, result bytea, created_at timestamptz)",
	},
	sqlfence.MySQL: {
		"Unknown column":             "CREATE TABLE coord_fence (resource varbinary(1024) PRIMARY KEY, token bigint) ENGINE=InnoDB",
		`keys are ""`:                marksOfMySQL("varbinary(1024)", "", "InnoDB"),
		`"PRIMARY(resource)"`:        marksOfMySQL("varbinary(1024)", ", PRIMARY KEY (resource)", "InnoDB"),
		`"PRIMARY(resource:9,lock)"`: marksOfMySQL("varbinary(1024)", ", PRIMARY KEY (resource(9), `lock`)", "InnoDB"),
		`,token(token)"`:             marksOfMySQL("varbinary(1024)", ", PRIMARY KEY (resource, `lock`), UNIQUE (token)", "InnoDB"),
		"Aria, not InnoDB":           marksOfMySQL("varbinary(99)", ", PRIMARY KEY (resource, `lock`)", "Aria"),
		"resource varchar(255)":      marksOfMySQL("varchar(255)", ", PRIMARY KEY (resource, `lock`)", "InnoDB"),
		"any 1024 bytes":             marksOfMySQL("varbinary(1023)", ", PRIMARY KEY (resource, `lock`)", "InnoDB"),
		"resource varchar(1024)":     strings.Replace(operationsOfMySQL, "resource varbinary(1024)", "resource varchar(1024)", 1),
		"insertable":                 "CREATE VIEW coord_fence AS SELECT 'r' AS resource, '' AS `lock`, 1 AS token, now() AS updated_at",
	},
	sqlfence.SQLite: {
		"no column named lock": "CREATE TABLE coord_fence (resource TEXT PRIMARY KEY, token INTEGER)",
		"does not match any":   "CREATE TABLE coord_fence (resource TEXT, lock TEXT, token INTEGER, updated_at TEXT)",
		"ON CONFLICT":          "CREATE TABLE coord_operations (id TEXT, resource TEXT, token INTEGER, result BLOB, created_at TEXT)",
	},
}

func TestMigrateSaysWhenATableIsAnother(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		for reason, ddl := range otherTables[b.kind] {
			t.Run(reason, func(t *testing.T) {
				db := b.empty(t)
				exec(t, db, ddl)
				if err := db.migrate(t); err == nil || !strings.Contains(err.Error(), "cannot be used") || !strings.Contains(err.Error(), reason) {
					t.Errorf("have %v, want that the table cannot be used because of %s", err, reason)
				}
			})
		}
	})
}

// A service usually runs without the right to create tables.
func TestMigrateNeedsNoRightsWhereTheTablesAreThere(t *testing.T) {
	onServers(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		place := db.schema(t)
		role := "service_" + place
		dsn := ""
		if b.kind == sqlfence.PostgreSQL {
			exec(t, db, "CREATE ROLE "+role+" LOGIN")
			exec(t, db, "GRANT USAGE ON SCHEMA "+place+" TO "+role)
			exec(t, db, "GRANT SELECT, INSERT, UPDATE ON coord_fence, coord_operations TO "+role)
			dsn = strings.Replace(postgresServer.Get(t).DSN(""), "user=coord", "user="+role, 1) + " search_path=" + place
		} else {
			role = "s_" + place
			exec(t, db, "CREATE USER "+role+"@localhost")
			for _, table := range []string{"coord_fence", "coord_operations"} {
				exec(t, db, "GRANT SELECT, INSERT, UPDATE ON "+table+" TO "+role+"@localhost")
			}
			dsn = mariadbServer.Get(t).DSN(place, role)
		}
		service := &database{DB: b.open(t, dsn), backend: b}
		if err := service.migrate(t); err != nil {
			t.Error(err)
		}
		if err := service.store().Admit(t.Context(), "r", 1); err != nil {
			t.Error(err)
		}
		if err := service.migrate(t, sqlfence.Table("another")); err == nil {
			t.Error("created a table without the right to")
		}
	})
}

func TestMigrateSaysWhichRightIsMissing(t *testing.T) {
	b := mariadb("MariaDB", "")
	db := b.migrated(t)
	place := db.schema(t)
	exec(t, db, "CREATE USER r_"+place+"@localhost")
	exec(t, db, "GRANT SELECT ON coord_fence TO r_"+place+"@localhost")
	reader := &database{DB: b.open(t, mariadbServer.Get(t).DSN(place, "r_"+place)), backend: b}
	if err := reader.migrate(t); err == nil || !strings.Contains(err.Error(), "denied") {
		t.Errorf("have %v, want that it may not write", err)
	}
}
