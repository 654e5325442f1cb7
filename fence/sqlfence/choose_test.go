package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/sqlfence"
	"github.com/coordd/coord/recipes/lock"
)

// The functions in this file stand in docs/choose.md to the letter.
// TestChooseShowsTheCodeThatRuns compares them, the tests beside it run them.

var (
	errNotTransferred  = errors.New("not transferred: no such account, or too little in it")
	errOverCredit      = errors.New("over the credit of the order")
	errEditedMeanwhile = errors.New("somebody has edited it meanwhile")
	errNotPaid         = errors.New("not paid: no such account, or too little in it")
)

func registerUnderLock(ctx context.Context, m *lock.Mutex, db *sql.DB, name string) error {
	return m.Do(ctx, func(ctx context.Context, h *lock.Handle) error {
		var n int
		err := db.QueryRowContext(ctx, `SELECT count(*) FROM members WHERE name = $1`, name).Scan(&n)
		if err != nil || n > 0 {
			return err
		}
		_, err = db.ExecContext(ctx, `INSERT INTO members (name) VALUES ($1)`, name)
		return err
	})
}

func register(ctx context.Context, db *sql.DB, name string) (isNew bool, err error) {
	result, err := db.ExecContext(ctx,
		`INSERT INTO accounts (name, balance) VALUES ($1, 0) ON CONFLICT (name) DO NOTHING`, name)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

func transfer(ctx context.Context, db *sql.DB, from, to string, amount int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, change := range []struct{ sql, account string }{
		{`UPDATE accounts SET balance = balance - $1 WHERE name = $2 AND balance >= $1`, from},
		{`UPDATE accounts SET balance = balance + $1 WHERE name = $2`, to},
	} {
		result, err := tx.ExecContext(ctx, change.sql, amount, change.account)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n != 1 {
			return errors.Join(errNotTransferred, err)
		}
	}
	return tx.Commit()
}

func addLine(ctx context.Context, db *sql.DB, order, price int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var total, credit int64
	err = tx.QueryRowContext(ctx, `SELECT total, credit FROM orders WHERE id = $1 FOR UPDATE`, order).Scan(&total, &credit)
	if err != nil {
		return err
	}
	if total+price > credit {
		return errOverCredit
	}
	if _, err = tx.ExecContext(ctx, `INSERT INTO lines (order_id, price) VALUES ($1, $2)`, order, price); err != nil {
		return err
	}
	if _, err = tx.ExecContext(ctx, `UPDATE orders SET total = $1 WHERE id = $2`, total+price, order); err != nil {
		return err
	}
	return tx.Commit()
}

func doNextJob(ctx context.Context, db *sql.DB, work func(id int64) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var id int64
	err = tx.QueryRowContext(ctx, `SELECT id FROM jobs WHERE NOT done ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED`).Scan(&id)
	if err != nil {
		return err // sql.ErrNoRows: nothing to do, or others do it
	}
	if err := work(id); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE jobs SET done = true WHERE id = $1`, id); err != nil {
		return err
	}
	return tx.Commit()
}

func cleanUp(ctx context.Context, db *sql.DB, work func(tx *sql.Tx) error) (ran bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	err = tx.QueryRowContext(ctx, `SELECT pg_try_advisory_xact_lock(hashtextextended('clean-up', 0))`).Scan(&ran)
	if err != nil || !ran {
		return false, err // somebody else is at it
	}
	if err := work(tx); err != nil {
		return false, err
	}
	return true, tx.Commit()
}

func rename(ctx context.Context, db *sql.DB, page, version int64, title string) error {
	result, err := db.ExecContext(ctx,
		`UPDATE pages SET title = $1, version = version + 1 WHERE id = $2 AND version = $3`, title, page, version)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return errors.Join(errEditedMeanwhile, err)
	}
	return nil
}

func pay(ctx context.Context, db *sql.DB, request, account string, amount int64) (receipt string, err error) {
	result, err := sqlfence.Once(ctx, db, sqlfence.Operation{ID: request}, func(tx *sql.Tx) ([]byte, error) {
		var left string
		err := tx.QueryRowContext(ctx, `UPDATE accounts SET balance = balance - $1
			WHERE name = $2 AND balance >= $1 RETURNING balance::text`, amount, account).Scan(&left)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, errNotPaid
		}
		return []byte("paid, " + left + " left"), err
	})
	return string(result.Data), err
}

func writeReport(ctx context.Context, c *client.Client, db *sql.DB, build func(context.Context) (string, error)) error {
	return lock.Correct(c, "/locks/report").Do(ctx, func(ctx context.Context, token fence.Token) error {
		text, err := build(ctx) // takes minutes, with no transaction open
		if err != nil {
			return err
		}
		return sqlfence.WithTx(ctx, db, "report", token, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE reports SET text = $1`, text)
			return err
		})
	})
}
