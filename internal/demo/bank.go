package demo

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/sqlfence"
)

// bankSchema is two rows that money moves between, and a third one.
const bankSchema = `
	CREATE TABLE account (
		name    text PRIMARY KEY,
		balance bigint NOT NULL CHECK (balance >= 0),
		token   bigint NOT NULL DEFAULT 0 -- of the careless transfer only
	);
	INSERT INTO account VALUES ('alice', 100), ('bob', 100), ('carol', 100);`

// openingBalance is what each account begins with.
const openingBalance = 100

// transfer is one logical operation: the same, under the same ID, in however
// many attempts it is asked for.
type transfer struct {
	ID     string `json:"id"`
	From   string `json:"from"`
	To     string `json:"to"`
	Amount int64  `json:"amount"`
}

// permit is the right to move money: the token of the lock on the account that
// pays.
type permit struct {
	Lock  string
	Token fence.Token
}

// outcome is what a transfer has come to. The zero value is none of them.
type outcome string

// The four outcomes. Of these only the last changes a balance.
const (
	// alreadyProcessed: it was applied before, by this attempt's doing or not.
	alreadyProcessed outcome = "AlreadyProcessed"
	// rejectedStale: a newer holder of the same lock has been here. Final for
	// this holder.
	rejectedStale outcome = "Rejected (stale token)"
	// insufficientBalance: nothing was done, and nothing is remembered; it may be
	// asked for again.
	insufficientBalance outcome = "InsufficientBalance"
	success             outcome = "Success"
)

// receipt says what became of a transfer.
type receipt struct {
	Outcome outcome     `json:"outcome"`
	By      fence.Token `json:"by,omitempty"`   // the token under which it was applied
	Seen    fence.Token `json:"seen,omitempty"` // the newer token, of rejectedStale
}

// accountError is returned for a transfer that makes no sense: no outcome, but a
// mistake of the caller.
type accountError struct {
	Account string
	Reason  string
}

// Error names the account.
func (e *accountError) Error() string { return fmt.Sprintf("account %q: %s", e.Account, e.Reason) }

// errInsufficient rolls a transfer back.
var errInsufficient = errors.New("insufficient balance")

// bank moves money between accounts. It is safe for concurrent use.
type bank struct {
	db          *sql.DB
	fencing     bool
	idempotency bool
	creditCheck bool
	// beforeCommit, if any, is called when a transfer is through but for its
	// commit, which an error prevents.
	beforeCommit func() error
}

func newBank(db *sql.DB, o Options) *bank {
	return &bank{db: db, fencing: o.has(Fence), idempotency: o.has(Idempotency), creditCheck: o.has(CreditCheck)}
}

// transfer moves money, or does not, in one transaction: the operation is
// looked up, the token admitted for both accounts, and both balances changed.
// With an error it is unknown what the caller wanted, or what was done; with one
// that matches sqlfence.ErrUnknownOutcome it may be asked for again.
func (b *bank) transfer(ctx context.Context, t transfer, p permit) (receipt, error) {
	if err := t.validate(); err != nil {
		return receipt{}, err
	}
	r, err := b.once(ctx, t, p)
	var stale *fence.StaleError
	switch {
	case errors.Is(err, errInsufficient):
		return receipt{Outcome: insufficientBalance}, nil
	case errors.As(err, &stale):
		return receipt{Outcome: rejectedStale, Seen: stale.Seen}, nil
	case errors.Is(err, errNoRow):
		return receipt{Outcome: rejectedStale}, nil
	default:
		return r, err
	}
}

func (t *transfer) validate() error {
	switch {
	case t.Amount <= 0:
		return &accountError{t.From, fmt.Sprintf("amount %d is not positive", t.Amount)}
	case t.From == t.To:
		return &accountError{t.From, "pays itself"}
	default:
		return nil
	}
}

// once applies a transfer unless it has been applied. The result that is kept
// with the operation is the transfer itself, so that an ID cannot serve for two.
func (b *bank) once(ctx context.Context, t transfer, p permit) (receipt, error) {
	if !b.idempotency {
		return receipt{success, p.Token, 0}, b.inTx(ctx, func(tx *sql.Tx) error { return b.apply(ctx, tx, t, p) })
	}
	res, err := sqlfence.Once(ctx, b.db, sqlfence.Operation{ID: t.ID, Token: p.Token}, func(tx *sql.Tx) ([]byte, error) {
		if err := b.apply(ctx, tx, t, p); err != nil {
			return nil, err
		}
		return json.Marshal(t)
	})
	if err != nil {
		return receipt{}, err
	}
	var applied transfer
	if err := json.Unmarshal(res.Data, &applied); err != nil {
		return receipt{}, fmt.Errorf("the result of operation %s: %w", t.ID, err)
	}
	if applied != t {
		return receipt{}, fmt.Errorf("transfer %s: %w", t.ID, sqlfence.ErrOperationReused)
	}
	if res.Repeated {
		return receipt{Outcome: alreadyProcessed, By: res.Token}, nil
	}
	return receipt{Outcome: success, By: res.Token}, nil
}

// inTx is a transaction without sqlfence.
func (b *bank) inTx(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// apply is the inside of a transfer. Accounts are taken in the order of their
// names, so that two transfers never wait for one another.
//
// A mark belongs to an account and a lock. Money comes to an account under the
// locks of many payers, and their tokens say nothing about each other: with one
// mark for each account a rightful payer would be refused because another one's
// lock was taken later.
func (b *bank) apply(ctx context.Context, tx *sql.Tx, t transfer, p permit) error {
	if !b.creditCheck {
		return careless(ctx, tx, t, p)
	}
	names := []string{t.From, t.To}
	slices.Sort(names)
	if b.fencing {
		for _, name := range names {
			if err := sqlfence.Admit(ctx, tx, accountResource(name), p.Token, sqlfence.Lock(p.Lock)); err != nil {
				return err
			}
		}
	}
	balances := map[string]int64{}
	for _, name := range names {
		balance, err := lockAccount(ctx, tx, name)
		if err != nil {
			return err
		}
		balances[name] = balance
	}
	if balances[t.From] < t.Amount {
		return errInsufficient
	}
	if err := addTo(ctx, tx, t.From, -t.Amount); err != nil {
		return err
	}
	if err := addTo(ctx, tx, t.To, t.Amount); err != nil {
		return err
	}
	if b.beforeCommit != nil {
		return b.beforeCommit()
	}
	return nil
}

// accountResource is what the fence calls an account.
func accountResource(name string) string { return "account/" + name }

// lockAccount reads a balance and keeps others from the row.
func lockAccount(ctx context.Context, tx *sql.Tx, name string) (balance int64, err error) {
	err = tx.QueryRowContext(ctx, `SELECT balance FROM account WHERE name = $1 FOR UPDATE`, name).Scan(&balance)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, &accountError{name, "there is none"}
	}
	return balance, err
}

// addTo changes one balance, and knows that it did: half a transfer is worse
// than none.
func addTo(ctx context.Context, tx *sql.Tx, name string, amount int64) error {
	res, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance + $1 WHERE name = $2`, amount, name)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n != 1 {
		err = &accountError{name, fmt.Sprintf("%d rows changed in place of 1", n)}
	}
	return err
}
