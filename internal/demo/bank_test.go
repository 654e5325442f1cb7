package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/sqlfence"
	"github.com/coordd/coord/internal/seed"
)

// The marks of these tests are small, as if a cluster had just begun.
var (
	older = permit{"/alice", 12}
	newer = permit{"/alice", 13}
	other = permit{"/bob", 14}
)

// mustTransfer asks for a transfer that has an outcome.
func mustTransfer(t *testing.T, b *bank, tr transfer, p permit) receipt {
	t.Helper()
	r, err := b.transfer(t.Context(), tr, p)
	if err != nil {
		t.Fatalf("%v under %v: %v", tr, p, err)
	}
	return r
}

func wantBooks(t *testing.T, d *database, want books) {
	t.Helper()
	got, err := readBooks(t.Context(), d.DB)
	if err != nil || got != want {
		t.Errorf("the books say %s, want %s (%v)", got, want, err)
	}
}

// Each of the four outcomes is a value of its own, and only success changes a
// balance.
func TestTransferHasFourOutcomes(t *testing.T) {
	d := testDatabase(t, bankSchema)
	b := newBank(d.DB, Options{})
	for _, c := range []struct {
		name string
		pays transfer
		with permit
		want receipt
		then books
	}{
		{"success", transfer{"a", "alice", "bob", 30}, newer, receipt{success, 13, 0}, books{70, 130, 100}},
		{"a holder's second", transfer{"b", "alice", "bob", 10}, newer, receipt{success, 13, 0}, books{60, 140, 100}},
		{"a repeat", transfer{"a", "alice", "bob", 30}, newer, receipt{alreadyProcessed, 13, 0}, books{60, 140, 100}},
		{"a repeat by a former holder", transfer{"a", "alice", "bob", 30}, older, receipt{alreadyProcessed, 13, 0}, books{60, 140, 100}},
		{"a former holder", transfer{"c", "alice", "bob", 10}, older, receipt{rejectedStale, 0, 13}, books{60, 140, 100}},
		{"too much", transfer{"d", "alice", "carol", 61}, newer, receipt{Outcome: insufficientBalance}, books{60, 140, 100}},
		{"all there is", transfer{"e", "alice", "carol", 60}, newer, receipt{success, 13, 0}, books{0, 140, 160}},
	} {
		if got := mustTransfer(t, b, c.pays, c.with); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		wantBooks(t, d, c.then)
	}
}

// What was refused is not remembered: when there is money it may be asked for
// again under the same id.
func TestRefusedTransferMayBeAskedForAgain(t *testing.T) {
	d := testDatabase(t, bankSchema)
	b := newBank(d.DB, Options{})
	pay := transfer{"a", "alice", "bob", 150}
	if got := mustTransfer(t, b, pay, newer); got.Outcome != insufficientBalance {
		t.Fatalf("%+v", got)
	}
	mustTransfer(t, b, transfer{"b", "bob", "alice", 50}, other)
	if got := mustTransfer(t, b, pay, newer); got.Outcome != success {
		t.Errorf("%+v", got)
	}
	wantBooks(t, d, books{0, 200, 100})
}

// A rightful holder with an older token meets an account that another lock's
// holder has written to under a newer one. Tokens of two locks do not compare.
func TestTokensOfTwoLocksDoNotCompare(t *testing.T) {
	d := testDatabase(t, bankSchema)
	b := newBank(d.DB, Options{})
	mustTransfer(t, b, transfer{"a", "bob", "carol", 10}, other)
	if got := mustTransfer(t, b, transfer{"b", "alice", "carol", 10}, newer); got.Outcome != success {
		t.Errorf("%+v", got)
	}
	wantBooks(t, d, books{90, 90, 120})
}

// The copied transfer loses money in that very schedule.
func TestCarelessTransferLosesMoney(t *testing.T) {
	d := testDatabase(t, bankSchema)
	b := newBank(d.DB, Options{Without: []Layer{CreditCheck}})
	mustTransfer(t, b, transfer{"a", "bob", "carol", 10}, other)
	if got := mustTransfer(t, b, transfer{"b", "alice", "carol", 10}, newer); got.Outcome != success {
		t.Errorf("%+v", got)
	}
	wantBooks(t, d, books{90, 90, 110})
	if got := mustTransfer(t, b, transfer{"c", "alice", "bob", 1000}, newer); got.Outcome != rejectedStale {
		t.Errorf("the copied transfer tells a small balance from an old token: %+v", got)
	}
}

// A credit that is refused takes the debit with it, whatever refuses it: a newer
// mark of the same lock on the account that gets the money, or no account.
func TestRefusedCreditLeavesNoDebit(t *testing.T) {
	d := testDatabase(t, bankSchema)
	b := newBank(d.DB, Options{})
	err := sqlfence.NewStore(d.DB, sqlfence.Lock(newer.Lock)).Admit(t.Context(), accountResource("bob"), 20)
	if err != nil {
		t.Fatal(err)
	}
	if got := mustTransfer(t, b, transfer{"a", "alice", "bob", 10}, newer); got != (receipt{rejectedStale, 0, 20}) {
		t.Errorf("%+v", got)
	}
	var none *accountError
	if _, err := b.transfer(t.Context(), transfer{"b", "alice", "dave", 10}, newer); !errors.As(err, &none) || none.Account != "dave" {
		t.Errorf("a transfer to nobody: %v", err)
	}
	wantBooks(t, d, books{100, 100, 100})
}

// Transfers that make no sense are mistakes and no outcomes.
func TestSenselessTransfersAreErrors(t *testing.T) {
	d := testDatabase(t, bankSchema)
	b := newBank(d.DB, Options{})
	for _, bad := range []transfer{
		{"a", "alice", "bob", 0}, {"b", "alice", "bob", -5}, {"c", "alice", "alice", 5}, {"d", "dave", "bob", 5}, {"", "alice", "bob", 5},
	} {
		if r, err := b.transfer(t.Context(), bad, newer); err == nil {
			t.Errorf("%+v: %+v", bad, r)
		}
	}
	if r, err := b.transfer(t.Context(), transfer{"e", "alice", "bob", 5}, permit{"/alice", 0}); !errors.Is(err, fence.ErrInvalidToken) {
		t.Errorf("without a token: %+v, %v", r, err)
	}
	mustTransfer(t, b, transfer{"f", "alice", "bob", 5}, newer)
	if r, err := b.transfer(t.Context(), transfer{"f", "alice", "bob", 6}, newer); !errors.Is(err, sqlfence.ErrOperationReused) {
		t.Errorf("one id for two transfers: %+v, %v", r, err)
	}
	wantBooks(t, d, books{95, 105, 100})
}

// Without its layer the bank shows the anomaly, always.
func TestBankWithoutALayer(t *testing.T) {
	d := testDatabase(t, bankSchema)
	pay := transfer{"a", "alice", "bob", 10}
	mustTransfer(t, newBank(d.DB, Options{}), pay, newer)
	if got := mustTransfer(t, newBank(d.DB, Options{Without: []Layer{Idempotency}}), pay, newer); got.Outcome != success {
		t.Errorf("without idempotency: %+v", got)
	}
	pay.ID = "b"
	if got := mustTransfer(t, newBank(d.DB, Options{Without: []Layer{Fence}}), pay, older); got.Outcome != success {
		t.Errorf("without a fence: %+v", got)
	}
	wantBooks(t, d, books{70, 130, 100})
}

// lockService gives out tokens of three locks, each larger than all before it,
// and now and then takes a lock from a holder that does not notice.
type lockService struct{ zxid atomic.Uint64 }

func (l *lockService) grant(account string) permit {
	return permit{"/" + account, fence.Token(l.zxid.Add(1))}
}

// Whatever happens at once (transfers in all directions, late holders, repeats)
// the sum stays, no balance is below zero, and each operation is applied once.
func TestSumOfBalancesStaysUnderConcurrency(t *testing.T) {
	d := testDatabase(t, bankSchema)
	b := newBank(d.DB, Options{})
	s := seed.New(t)
	rounds := 120
	if testing.Short() {
		rounds = 30
	}
	const nodes = 8
	var locks lockService
	var seen sync.Map // operation to how often it was applied
	accounts := []string{"alice", "bob", "carol"}
	var outcomes sync.Map
	var wg sync.WaitGroup
	for n := range nodes {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(s, uint64(n)))
			held := map[string]permit{} // some of them lost without notice
			for i := range rounds {
				from := rnd.IntN(3)
				to := (from + 1 + rnd.IntN(2)) % 3
				// The operation says what it is, so that an id serves for one only; there
				// are so few that repeats are certain.
				tr := transfer{From: accounts[from], To: accounts[to], Amount: int64(20 * (1 + rnd.IntN(4)))}
				tr.ID = fmt.Sprint(tr.From, tr.To, tr.Amount, i%40)
				if p := held[tr.From]; p.Token == 0 || rnd.IntN(3) == 0 {
					held[tr.From] = locks.grant(tr.From)
				}
				r, err := b.transfer(t.Context(), tr, held[tr.From])
				if err != nil {
					t.Errorf("%+v: %v", tr, err)
					return
				}
				outcomes.Store(r.Outcome, true)
				if r.Outcome == success {
					count, _ := seen.LoadOrStore(tr.ID, new(atomic.Int32))
					if count.(*atomic.Int32).Add(1) > 1 {
						t.Errorf("%s was applied twice", tr.ID)
					}
				}
			}
		})
	}
	wg.Wait()
	after, err := readBooks(context.Background(), d.DB)
	if err != nil || after.sum() != 3*openingBalance || min(after.Alice, after.Bob, after.Carol) < 0 {
		t.Errorf("the books say %s (%v)", after, err)
	}
	applied, err := number(context.Background(), d.DB, `SELECT count(*) FROM `+sqlfence.DefaultOperationsTable)
	if err != nil {
		t.Fatal(err)
	}
	successes := 0
	seen.Range(func(any, any) bool { successes++; return true })
	if int(applied) != successes {
		t.Errorf("%d operations are recorded, %d were answered with success", applied, successes)
	}
	for _, o := range []outcome{success, alreadyProcessed, rejectedStale, insufficientBalance} {
		if _, ok := outcomes.Load(o); !ok {
			t.Errorf("the schedule never came to %q", o)
		}
	}
}

// Two attempts at once apply an operation once, and if the first one fails the
// second does it.
func TestRepeatAtTheSameTimeWaitsForTheFirst(t *testing.T) {
	for _, c := range []struct {
		name  string
		fails error
		want  outcome
	}{{"commits", nil, alreadyProcessed}, {"fails", errCrash, success}} {
		t.Run(c.name, func(t *testing.T) {
			d := testDatabase(t, bankSchema)
			r := clickRun{db: d, bank: newBank(d.DB, Options{}), stage: &stage{timeline: newTimeline(t.Output())}}
			if err := r.collide(t.Context(), transfer{"a", "alice", "bob", 10}, older, newer, c.fails, c.want); err != nil {
				t.Error(err)
			}
			wantBooks(t, d, books{90, 110, 100})
		})
	}
}
