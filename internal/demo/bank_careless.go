package demo

import (
	"context"
	"database/sql"
	"errors"
)

// errNoRow is the refusal of a careless transfer. It cannot say whether the token
// was old, the balance too small, or the account not there.
var errNoRow = errors.New("no row was changed")

// careless is the inside of a transfer as it is often copied: each account has
// one mark for the tokens of all locks, and nobody looks whether the credit met
// a row.
func careless(ctx context.Context, tx *sql.Tx, t transfer, p permit) error {
	res, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance - $1, token = $2
		WHERE name = $3 AND balance >= $1 AND token <= $2`, t.Amount, int64(p.Token), t.From)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return err
	}
	if n == 0 {
		return errNoRow
	}
	_, err = tx.ExecContext(ctx, `UPDATE account SET balance = balance + $1, token = $2
		WHERE name = $3 AND token <= $2`, t.Amount, int64(p.Token), t.To)
	return err
}
