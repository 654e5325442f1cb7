package demo

import (
	"context"
	"errors"
	"fmt"

	"github.com/coordd/coord/recipes/lock"
)

// walletCase is one scripted attempt.
type walletCase struct {
	who     string
	says    string
	pays    transfer
	permit  permit
	want    outcome
	instead anomaly // that a success would be
}

// allOutcomes reaches each outcome by a scripted case.
func (w *walletRun) allOutcomes(ctx context.Context) error {
	old, fresh, other, err := w.permits(ctx)
	if err != nil {
		return err
	}
	for _, c := range []walletCase{
		{
			"node 2", "the holder pays",
			transfer{"op-1", "alice", "bob", 30},
			fresh,
			success,
			anomaly{},
		},
		{
			"node 2", "the same operation again",
			transfer{"op-1", "alice", "bob", 30},
			fresh,
			alreadyProcessed,
			anomaly{ErrLogicalRepeat, "op-1 was applied twice"},
		},
		{
			"node 1", "the former holder pays",
			transfer{"op-2", "alice", "bob", 20},
			old,
			rejectedStale,
			anomaly{ErrOldOverNew, "node 1 moved money with a token below node 2's"},
		},
		{
			"node 2", "more than there is",
			transfer{"op-3", "alice", "bob", 1000},
			fresh,
			insufficientBalance,
			anomaly{},
		},
		{
			"node 3", "under another lock",
			transfer{"op-4", "bob", "carol", 10},
			other,
			success,
			anomaly{},
		},
		{
			"node 2", "to the same account, with the older token of its own lock",
			transfer{"op-5", "alice", "carol", 10},
			fresh,
			success,
			anomaly{},
		},
	} {
		if err := w.try(ctx, c); err != nil {
			return err
		}
	}
	return w.refusedCredit(ctx, fresh)
}

// permits are those of a former holder of alice's lock, of its holder, and of the
// holder of bob's, which was granted last.
func (w *walletRun) permits(ctx context.Context) (old, fresh, other permit, err error) {
	grant := func(who, account string) (*lock.Handle, permit, error) {
		h, p, err := w.permit(ctx, who, account)
		if err == nil {
			w.say(who, "has the lock on %s: session %s, token %s", account, sessionAt(h.Session().Client()), w.label(p.Token))
		}
		return h, p, err
	}
	h, old, err := grant("node 1", "alice")
	if err != nil {
		return old, fresh, other, err
	}
	if err := h.Release(ctx); err != nil {
		return old, fresh, other, err
	}
	w.say("node 1", "gives it back, and does not forget its token")
	if _, fresh, err = grant("node 2", "alice"); err == nil {
		_, other, err = grant("node 3", "bob")
	}
	return old, fresh, other, err
}

func (w *walletRun) try(ctx context.Context, c walletCase) error {
	r, err := w.bank.transfer(ctx, c.pays, c.permit)
	if err != nil {
		return err
	}
	w.say(c.who, "%s: %d from %s to %s, token %s: %s", c.says, c.pays.Amount, c.pays.From, c.pays.To, w.label(c.permit.Token), w.tell(r))
	if !w.o.has(CreditCheck) {
		return nil // it has no outcomes to compare: the books will tell
	}
	return w.expect(r, c.want, c.instead)
}

// refusedCredit takes the money out and finds nobody to give it to: the
// transaction must not have happened.
func (w *walletRun) refusedCredit(ctx context.Context, p permit) error {
	t := transfer{"op-6", "alice", "dave", 10}
	if !w.o.has(CreditCheck) {
		return nil // shown already
	}
	_, err := w.bank.transfer(ctx, t, p)
	var none *accountError
	if !errors.As(err, &none) {
		return fmt.Errorf("%w: a transfer to nobody: %w", ErrUnexpected, errors.Join(err))
	}
	w.say("node 2", "to an account that is not there: %v; nothing was taken from %s", err, t.From)
	return nil
}
