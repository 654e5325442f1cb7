// Command report counts its runs in PostgreSQL, under a lock and fenced: of
// any number started at once, on any number of hosts, one runs at a time, and
// one that was paused too long cannot write. Its core is the program in the
// README.
package main

import (
	"context"
	"database/sql"
	"log"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence/sqlfence"
	"github.com/coordd/coord/recipes/lock"
)

func main() {
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if err := run(context.Background(), os.Getenv("COORD_ENDPOINTS"), db); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, servers string, db *sql.DB) error {
	c, err := client.Dial(ctx, servers)
	if err != nil {
		return err
	}
	defer c.Close()
	return lock.New(c, "/locks/report").Do(ctx, func(ctx context.Context, h *lock.Handle) error {
		return sqlfence.WithTx(ctx, db, "report", h.FencingToken(), func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE report SET runs = runs + 1")
			return err // ctx ends if the lock is lost; the database refuses a stale token
		})
	})
}
