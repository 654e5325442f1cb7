package sqlfence_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/sqlfence"
)

// The holder of a lock writes a report. The context is the one of the lock's
// handle, which ends when the lock is lost; the token is the handle's as well,
// or that of `coordctl lock`, as here.
func ExampleWithTx() {
	ctx := context.Background()
	token, ok := fence.FromEnv()
	if !ok {
		fmt.Println("not started under a lock")
		return
	}
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	err = sqlfence.WithTx(ctx, db, "nightly-report", token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE report SET written_at = now()")
		return err
	}, sqlfence.Lock("/locks/nightly-report"))
	if err != nil {
		fmt.Println(err) // errors.Is(err, fence.ErrStale): a newer holder has been here
	}
	// Output: not started under a lock
}
