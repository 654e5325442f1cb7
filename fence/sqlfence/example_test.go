package sqlfence_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/coordd/coord/fence/sqlfence"
)

// withReport runs f with a database that has one report and the tables of this
// package.
func withReport(f func(ctx context.Context, db *sql.DB)) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "sqlfence-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := sqlfence.Migrate(ctx, db, sqlfence.Dialect(sqlfence.SQLite)); err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE report AS SELECT 'empty' AS text, 100 AS money"); err != nil {
		log.Fatal(err)
	}
	f(ctx, db)
}

// The holder with token 33 was paused, and one with 34 has written meanwhile. The
// context and the token are those of a lock's handle.
func ExampleWithTx() {
	withReport(func(ctx context.Context, db *sql.DB) {
		write := func(text string) func(*sql.Tx) error {
			return func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "UPDATE report SET text = ?", text)
				return err
			}
		}
		dialect := sqlfence.Dialect(sqlfence.SQLite)
		fmt.Println(sqlfence.WithTx(ctx, db, "report", 34, write("new"), dialect))
		fmt.Println(sqlfence.WithTx(ctx, db, "report", 33, write("old"), dialect))
		var text string
		err := db.QueryRowContext(ctx, "SELECT text FROM report").Scan(&text)
		fmt.Println(text, err)
	})
	// Output:
	// <nil>
	// fence: stale token for "report": 33 < 34, a newer holder has been here
	// new <nil>
}

// A payment is asked for twice, the second time under a newer token.
func ExampleOnce() {
	withReport(func(ctx context.Context, db *sql.DB) {
		pay := func(tx *sql.Tx) ([]byte, error) {
			_, err := tx.ExecContext(ctx, "UPDATE report SET money = money - 10")
			return []byte("receipt"), err
		}
		op := sqlfence.Operation{ID: "invoice-7", Resource: "report", Token: 34}
		for range 2 {
			result, err := sqlfence.Once(ctx, db, op, pay, sqlfence.Dialect(sqlfence.SQLite))
			fmt.Printf("%s, repeated: %v, by %s, %v\n", result.Data, result.Repeated, result.Token, err)
			op.Token++
		}
		var money int
		err := db.QueryRowContext(ctx, "SELECT money FROM report").Scan(&money)
		fmt.Println(money, err)
	})
	// Output:
	// receipt, repeated: false, by 34, <nil>
	// receipt, repeated: true, by 34, <nil>
	// 90 <nil>
}

// A transfer between two accounts that two locks guard checks both tokens.
func ExampleAdmit() {
	withReport(func(ctx context.Context, db *sql.DB) {
		dialect := sqlfence.Dialect(sqlfence.SQLite)
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() { _ = tx.Rollback() }()
		fmt.Println(sqlfence.Admit(ctx, tx, "account/a", 34, dialect, sqlfence.Lock("/locks/a")))
		fmt.Println(sqlfence.Admit(ctx, tx, "account/b", 12, dialect, sqlfence.Lock("/locks/b")))
		// ... the two updates, each with its rows counted ...
		fmt.Println(tx.Commit())
	})
	// Output:
	// <nil>
	// <nil>
	// <nil>
}
