package sqlfence_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/coordd/coord/fence/sqlfence"
)

func TestMigrateMayRunManyTimesAtOnce(t *testing.T) {
	db := emptyDatabase(t)
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			if err := sqlfence.Migrate(context.Background(), db); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := sqlfence.NewStore(db).Admit(t.Context(), "r", 41); err != nil {
		t.Fatal(err)
	}
	if err := sqlfence.Migrate(t.Context(), db); err != nil {
		t.Error(err)
	}
	if got := number(t, db, "SELECT token FROM coord_fence WHERE resource = 'r'"); got != 41 {
		t.Errorf("the mark is %d after another Migrate, want 41", got)
	}
}

func TestMigrateTakesTableInASchema(t *testing.T) {
	db := emptyDatabase(t)
	schema := "Guard_" + currentSchema(t, db)
	table := sqlfence.Table(schema + ".Marks")
	if err := sqlfence.Migrate(t.Context(), db, table); err == nil {
		t.Error("the schema does not exist, want an error")
	}
	exec(t, db, `CREATE SCHEMA "`+schema+`"`)
	for range 2 {
		if err := sqlfence.Migrate(t.Context(), db, table); err != nil {
			t.Fatal(err)
		}
	}
	if err := sqlfence.NewStore(db, table).Admit(t.Context(), "r", 41); err != nil {
		t.Error(err)
	}
	if got := number(t, db, `SELECT token FROM "`+schema+`"."Marks"`); got != 41 {
		t.Errorf("the mark is %d, want 41", got)
	}
}

func TestMigrateSaysWhenTheTableIsAnother(t *testing.T) {
	for name, ddl := range map[string]string{
		"no column":      "CREATE TABLE coord_fence (resource text PRIMARY KEY, token bigint)",
		"no primary key": "CREATE TABLE coord_fence (resource text, lock text, token bigint, updated_at timestamptz)",
	} {
		t.Run(name, func(t *testing.T) {
			db := emptyDatabase(t)
			exec(t, db, ddl)
			err := sqlfence.Migrate(t.Context(), db)
			if err == nil || !strings.Contains(err.Error(), "cannot be used") {
				t.Errorf("have %v, want that the table cannot be used", err)
			}
		})
	}
}

// A service usually runs without the right to create tables.
func TestMigrateNeedsNoRightsWhereTheTableIsThere(t *testing.T) {
	db := database(t)
	schema := currentSchema(t, db)
	role := "service_" + schema
	exec(t, db, "CREATE ROLE "+role+" LOGIN")
	exec(t, db, "GRANT USAGE ON SCHEMA "+schema+" TO "+role)
	exec(t, db, "GRANT SELECT, INSERT, UPDATE ON coord_fence, coord_operations TO "+role)
	service := open(t, strings.Replace(server.Get(t).DSN(""), "user=coord", "user="+role, 1)+" search_path="+schema)
	if err := sqlfence.Migrate(t.Context(), service); err != nil {
		t.Error(err)
	}
	if err := sqlfence.NewStore(service).Admit(t.Context(), "r", 1); err != nil {
		t.Error(err)
	}
	if err := sqlfence.Migrate(t.Context(), service, sqlfence.Table("another")); err == nil {
		t.Error("created a table without the right to")
	}
}
