package demo

import (
	"context"
	"database/sql"
	"fmt"
)

// careless is the transfer as it is often copied: each account has one mark for
// the tokens of all locks, and nobody looks whether the credit met a row.
func careless(ctx context.Context, b *bank, t transfer, p permit) (receipt, error) {
	r := receipt{Outcome: success, By: p.Token}
	err := b.inTx(ctx, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance - $1, token = $2
			WHERE name = $3 AND balance >= $1 AND token <= $2`, t.Amount, int64(p.Token), t.From)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			r = receipt{Outcome: rejectedStale} // or is it the balance? Nobody can tell
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE account SET balance = balance + $1, token = $2
			WHERE name = $3 AND token <= $2`, t.Amount, int64(p.Token), t.To)
		return err
	})
	return r, err
}

// books are the balances of all accounts.
type books struct{ Alice, Bob, Carol int64 }

func (b books) sum() int64 { return b.Alice + b.Bob + b.Carol }

// String shows the balances and their sum.
func (b books) String() string {
	return fmt.Sprintf("alice %d, bob %d, carol %d; the sum is %d", b.Alice, b.Bob, b.Carol, b.sum())
}

func readBooks(ctx context.Context, db *sql.DB) (b books, err error) {
	err = db.QueryRowContext(ctx, `SELECT
		sum(balance) FILTER (WHERE name = 'alice'),
		sum(balance) FILTER (WHERE name = 'bob'),
		sum(balance) FILTER (WHERE name = 'carol') FROM account`).Scan(&b.Alice, &b.Bob, &b.Carol)
	return b, err
}

// transfer asks the bank in the name of the lock that the worker has or had.
func (w *worker) transfer(ctx context.Context, c command) (workerEvent, error) {
	r, err := newBank(w.db, Options{Without: c.Without}).transfer(ctx, *c.Transfer, permit{c.Lock, w.token})
	return workerEvent{Event: eventMoved, Token: w.token, Receipt: &r}, err
}
