package demo

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/coordd/coord/fence/sqlfence"
	"github.com/coordd/coord/internal/pgtest"
)

// postgres is one server for all tests; each has a database of its own.
var postgres pgtest.Shared

func TestMain(m *testing.M) {
	code := m.Run()
	if err := postgres.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(goleak.IgnoreTopFunction("github.com/coordd/coord/internal/tied.serve")); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// databases counts those of testDatabase.
var databases atomic.Int64

// testDatabase makes a database with the given tables and those of sqlfence.
func testDatabase(t *testing.T, schema string) *database {
	t.Helper()
	server := postgres.Get(t)
	ctx := context.Background()
	admin, err := openDatabase(server.DSN(pgtest.Database))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	name := fmt.Sprintf("demo_%d", databases.Add(1)) // the server is this process's own
	if _, err := admin.ExecContext(ctx, `CREATE DATABASE `+name); err != nil {
		t.Fatal(err)
	}
	d := &database{dsn: server.DSN(name)}
	if d.DB, err = openDatabase(d.dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if err := sqlfence.Migrate(ctx, d.DB); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ExecContext(ctx, schema); err != nil {
		t.Fatal(err)
	}
	return d
}
