package demo

import (
	"context"
	"errors"
	"fmt"

	"github.com/coordd/coord/fence"
)

// DoubleClick shows what fencing cannot stop: one payment is asked for twice, and
// both attempts have the lock in turn and a token that is good. It returns nil
// only if the money moved once, also with both attempts in the database at the
// same time, and also if the first one of them fails there. Its layer is
// [Idempotency].
func DoubleClick(ctx context.Context, o Options) error {
	return perform(ctx, "double-click", o, func(ctx context.Context, s *stage) error {
		db, err := s.startDatabase(ctx, bankSchema)
		if err != nil {
			return err
		}
		r := clickRun{stage: s, db: db, bank: newBank(db.DB, o)}
		before, err := readBooks(ctx, db.DB)
		if err != nil {
			return err
		}
		s.say("bank", "before: %s", before)
		if err := r.oneAfterTheOther(ctx); err != nil {
			return err
		}
		if o.has(Idempotency) {
			if err := r.together(ctx); err != nil {
				return err
			}
		}
		return r.judge(ctx, before)
	})
}

// clicked is the amount of each payment.
const clicked = 10

// clickRun is one run. asked counts the payments that were wanted, each of which
// should move the money once.
type clickRun struct {
	*stage
	db    *database
	bank  *bank
	asked int64
}

// grant takes the lock for one attempt and gives it back at once. The token stays
// good for as long as nobody has written with a newer one.
func (r *clickRun) grant(ctx context.Context, who string) (permit, error) {
	h, p, err := r.permit(ctx, who, "alice")
	if err != nil {
		return permit{}, err
	}
	r.say(who, "has the lock: session %s, token %s", sessionAt(h.Session().Client()), p.Token)
	return p, h.Release(ctx)
}

// oneAfterTheOther is the plain double click: the second begins when the first
// is through.
func (r *clickRun) oneAfterTheOther(ctx context.Context) error {
	r.asked++
	pay := transfer{"click-1", "alice", "bob", clicked}
	var first fence.Token
	for i, who := range []string{"node 1", "node 2"} {
		p, err := r.grant(ctx, who)
		if err != nil {
			return err
		}
		got, err := r.bank.transfer(ctx, pay, p)
		if err != nil {
			return err
		}
		r.say(who, "%s: move %d, token %s: %s", pay.ID, pay.Amount, p.Token, got.Outcome)
		switch {
		case i == 0:
			first = got.By
		case got.Outcome == alreadyProcessed && got.By == first:
			r.say(who, "the answer is the stored one: applied under token %s", got.By)
		case got.Outcome == success:
			r.say(who, "the fence could not help: token %s is newer than %s, and good", p.Token, first)
		default:
			return r.broken(ErrUnexpected, "%s under token %s", got.Outcome, got.By)
		}
	}
	return nil
}

// judge counts how often the money moved.
func (r *clickRun) judge(ctx context.Context, before books) error {
	after, err := readBooks(ctx, r.db.DB)
	if err != nil {
		return err
	}
	r.say("bank", "after:  %s", after)
	if after.sum() != before.sum() {
		return r.broken(ErrMoneyLost, "the sum was %d and is %d", before.sum(), after.sum())
	}
	moved := (before.Alice - after.Alice) / clicked
	switch {
	case moved > r.asked:
		return r.broken(ErrLogicalRepeat, "payments asked for: %d, paid: %d", r.asked, moved)
	case moved < r.asked:
		return r.broken(ErrUnexpected, "payments asked for: %d, paid: %d", r.asked, moved)
	default:
		return r.kept("%d payments were asked for twice each, and each was made once", r.asked)
	}
}

// together has both attempts in the database at the same time: the second waits
// for the first and finds its result, or, if the first one fails, pays itself.
func (r *clickRun) together(ctx context.Context) error {
	for _, act := range []struct {
		id    string
		fails error
		want  outcome // of the second
	}{
		{"click-2", nil, alreadyProcessed},
		{"click-3", errCrash, success},
	} {
		r.asked++
		if err := r.overlap(ctx, transfer{act.id, "alice", "bob", clicked}, act.fails, act.want); err != nil {
			return fmt.Errorf("%s: %w", act.id, err)
		}
	}
	return nil
}

// errCrash is what a first attempt fails with before its commit.
var errCrash = errors.New("node 1 fails before its commit")
