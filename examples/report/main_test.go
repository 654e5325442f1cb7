package main

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/coordd/coord/fence/sqlfence"
	"github.com/coordd/coord/internal/localcluster"
	"github.com/coordd/coord/internal/pgtest"
)

func TestProgramRuns(t *testing.T) {
	ctx := context.Background()
	pg := pgtest.Get(t, pgtest.Options{})
	db, err := sql.Open("pgx", pg.DSN(pgtest.Database))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := sqlfence.Migrate(ctx, db); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE report (runs int); INSERT INTO report VALUES (0)"); err != nil {
		t.Fatal(err)
	}
	c, err := localcluster.Start(ctx, localcluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := run(ctx, c.Target(), db); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var runs int
	if err := db.QueryRowContext(ctx, "SELECT runs FROM report").Scan(&runs); err != nil || runs != 4 {
		t.Fatalf("runs = %d, %v; want 4", runs, err)
	}
}

func TestReadmeShowsThisProgram(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, core, _ := strings.Cut(string(program), "\nfunc run(")
	if !strings.Contains(string(readme), "func run("+core) {
		t.Error("the program in README.md is not the one in main.go")
	}
}
