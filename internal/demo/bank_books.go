package demo

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/coordd/coord/recipes/lock"
)

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

// permit takes the lock on an account for an actor in this process.
func (s *stage) permit(ctx context.Context, who, account string) (*lock.Handle, permit, error) {
	c, err := s.as(ctx, who)
	if err != nil {
		return nil, permit{}, err
	}
	p := permit{Lock: s.root + "/" + account}
	h, err := lock.New(c, p.Lock, lock.Owner(who)).Acquire(ctx)
	if err != nil {
		return nil, permit{}, err
	}
	p.Token = h.FencingToken()
	return h, p, nil
}

// transfer asks the bank in the name of the lock that the worker has or had.
func (w *worker) transfer(ctx context.Context, c command) (workerEvent, error) {
	r, err := newBank(w.db, Options{Without: c.Without}).transfer(ctx, *c.Transfer, permit{c.Lock, w.token})
	return workerEvent{Event: eventMoved, Token: w.token, Receipt: &r}, err
}
