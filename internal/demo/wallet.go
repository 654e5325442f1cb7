package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/coordd/coord/fence"
)

// WalletOptions are those of [Wallet].
type WalletOptions struct {
	Options
	// AllOutcomes plays one scripted case for each outcome in place of the
	// story of the two nodes.
	AllOutcomes bool
}

// Wallet shows a transfer of money between two rows of a database, with its four
// outcomes. The story is that of a lease of 10 s and work that takes 15 s: node 1
// has token 12 and is too slow, node 2 does the work under token 13, and node 1
// finishes after it. It returns nil only if each attempt had the right outcome
// and the sum of all balances is as before. Its layers are [Fence],
// [Idempotency] and [CreditCheck]; without the last it plays all outcomes.
func Wallet(ctx context.Context, o WalletOptions) error {
	return perform(ctx, "wallet", o.Options, func(ctx context.Context, s *stage) error {
		db, err := s.startDatabase(ctx, bankSchema)
		if err != nil {
			return err
		}
		w := walletRun{stage: s, db: db, bank: newBank(db.DB, o.Options)}
		before, err := readBooks(ctx, db.DB)
		if err != nil {
			return err
		}
		s.say("bank", "before: %s", before)
		play := w.story
		if o.AllOutcomes || !o.has(CreditCheck) {
			play = w.allOutcomes
		}
		if err := play(ctx); err != nil {
			return err
		}
		return w.judge(ctx, before)
	})
}

// walletRun is one run of the demonstration.
type walletRun struct {
	*stage
	db     *database
	bank   *bank
	tokens []fence.Token // in the order of the acquisitions
	// anomalies are what the outcomes have shown.
	anomalies []anomaly
}

// anomaly is one outcome that should have been another.
type anomaly struct {
	err    error
	detail string
}

// firstLabel is what the first token of the story is called.
const firstLabel = 12

// label names a token as the story does, with the real one beside it.
func (w *walletRun) label(t fence.Token) string {
	i := slices.Index(w.tokens, t)
	if i < 0 {
		w.tokens = append(w.tokens, t)
		i = len(w.tokens) - 1
	}
	return fmt.Sprintf("%d (really %s)", firstLabel+i, t)
}

// tell is what a receipt says.
func (w *walletRun) tell(r receipt) string {
	switch {
	case r.Outcome == rejectedStale && r.Seen != 0:
		return fmt.Sprintf("%s: the row has seen token %s", r.Outcome, w.label(r.Seen))
	case r.Outcome == alreadyProcessed:
		return fmt.Sprintf("%s, under token %s", r.Outcome, w.label(r.By))
	default:
		return string(r.Outcome)
	}
}

// expect compares an outcome with the script. A success that should be none is
// the given anomaly, which the judge will name.
func (w *walletRun) expect(r receipt, want outcome, a anomaly) error {
	switch {
	case r.Outcome == want:
		return nil
	case r.Outcome == success && a.err != nil:
		w.anomalies = append(w.anomalies, a)
		return nil
	default:
		return w.broken(ErrUnexpected, "%s in place of %s", r.Outcome, want)
	}
}

// judge closes the books.
func (w *walletRun) judge(ctx context.Context, before books) error {
	after, err := readBooks(ctx, w.db.DB)
	if err != nil {
		return err
	}
	w.say("bank", "after:  %s", after)
	if lost := before.sum() - after.sum(); lost != 0 {
		w.anomalies = append(w.anomalies, anomaly{ErrMoneyLost, fmt.Sprintf("%d was taken from one account and reached no other", lost)})
	} else {
		w.say("bank", "sum before = %d = sum after", after.sum())
	}
	var errs []error
	for _, a := range w.anomalies {
		errs = append(errs, w.broken(a.err, "%s", a.detail))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return w.kept("each attempt had its outcome, and no money came or went")
}
