package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/sqlfence"
)

// step is one admission: seen is the mark that refuses it, or 0.
type step struct{ token, seen fence.Token }

func TestAdmitRefusesOnlyLowerTokens(t *testing.T) {
	db := database(t)
	runSteps(t, db, []step{{41, 0}, {41, 0}, {42, 0}, {41, 42}, {42, 0}, {fence.MaxToken, 0}, {42, fence.MaxToken}})
}

func TestStrictAdmitRefusesEqualTokensToo(t *testing.T) {
	db := database(t)
	runSteps(t, db, []step{{41, 0}, {41, 41}, {42, 0}, {41, 42}, {42, 42}, {43, 0}}, sqlfence.Strict())
}

func runSteps(t *testing.T, db *sql.DB, steps []step, opts ...sqlfence.Option) {
	t.Helper()
	for i, s := range steps {
		tx := begin(t, db)
		err := sqlfence.Admit(t.Context(), tx, "r", s.token, opts...)
		if s.seen == 0 && err != nil {
			t.Errorf("step %d: token %s: %v, want it admitted", i, s.token, err)
		}
		if s.seen != 0 {
			wantStale(t, err, s.token, s.seen)
		}
		if err := tx.Commit(); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
	}
}

func wantStale(t *testing.T, err error, got, seen fence.Token) {
	t.Helper()
	var stale *fence.StaleError
	if !errors.As(err, &stale) || !errors.Is(err, fence.ErrStale) {
		t.Errorf("token %s: %v, want a *StaleError", got, err)
		return
	}
	if stale.Resource != "r" || stale.Got != got || stale.Seen != seen {
		t.Errorf("have %+v, want got %s seen %s", stale, got, seen)
	}
}

// admitLater admits in a goroutine and a transaction of its own and commits.
func admitLater(t *testing.T, db *sql.DB, token fence.Token) <-chan error {
	t.Helper()
	tx := begin(t, db)
	verdict := make(chan error, 1)
	go func() {
		err := sqlfence.Admit(context.Background(), tx, "r", token)
		if err == nil {
			err = tx.Commit()
		} else {
			_ = tx.Rollback()
		}
		verdict <- err
	}()
	return verdict
}

func TestOlderHolderWaitsForNewerAndIsRefused(t *testing.T) {
	for name, before := range map[string][]step{"first use": nil, "later use": {{40, 0}}} {
		t.Run(name, func(t *testing.T) {
			db := database(t)
			runSteps(t, db, before)
			tx43 := begin(t, db)
			if err := sqlfence.Admit(t.Context(), tx43, "r", 43); err != nil {
				t.Fatal(err)
			}
			older := admitLater(t, db, 42)
			waitBlocked(t, db, 1)
			if err := tx43.Commit(); err != nil {
				t.Fatal(err)
			}
			wantStale(t, <-older, 42, 43)
		})
	}
}

func TestNewerHolderWaitsAndIsAdmitted(t *testing.T) {
	for name, before := range map[string][]step{"first use": nil, "later use": {{40, 0}}} {
		t.Run(name, func(t *testing.T) {
			db := database(t)
			runSteps(t, db, before)
			tx43 := begin(t, db)
			if err := sqlfence.Admit(t.Context(), tx43, "r", 43); err != nil {
				t.Fatal(err)
			}
			newer := admitLater(t, db, 44)
			waitBlocked(t, db, 1)
			if err := tx43.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := <-newer; err != nil {
				t.Errorf("token 44: %v, want it admitted", err)
			}
			wantStale(t, <-admitLater(t, db, 43), 43, 44)
		})
	}
}

// A transaction that rolls back has written nothing, so it has not been there.
func TestRolledBackHolderLeavesNoMark(t *testing.T) {
	db := database(t)
	tx43 := begin(t, db)
	if err := sqlfence.Admit(t.Context(), tx43, "r", 43); err != nil {
		t.Fatal(err)
	}
	older := admitLater(t, db, 42)
	waitBlocked(t, db, 1)
	if err := tx43.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-older; err != nil {
		t.Errorf("token 42: %v, want it admitted", err)
	}
}

// TestLateCommitIsImpossible stops holder 43 between its write and its commit,
// as a paused process is, until the server has given its row to holder 44.
func TestLateCommitIsImpossible(t *testing.T) {
	db := database(t)
	tx43 := begin(t, db)
	if err := sqlfence.Admit(t.Context(), tx43, "r", 43, sqlfence.MaxIdle(100*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	exec(t, tx43, "INSERT INTO writes (token) VALUES (43)")
	if err := <-admitLater(t, db, 44); err != nil {
		t.Fatalf("token 44: %v, want it admitted once 43 has been idle for too long", err)
	}
	if err := tx43.Commit(); err == nil {
		t.Error("43 committed after 44 had been admitted")
	}
	if n := number(t, db, "SELECT count(*) FROM writes"); n != 0 {
		t.Errorf("%d writes of 43 are there", n)
	}
	wantStale(t, <-admitLater(t, db, 43), 43, 44)
}

func TestIdleLimitEndsWithTheTransaction(t *testing.T) {
	db := database(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	limit := func() (text string) {
		t.Helper()
		if err := conn.QueryRowContext(t.Context(), "SHOW idle_in_transaction_session_timeout").Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := limit()
	tx, err := conn.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sqlfence.Admit(t.Context(), tx, "r", 1, sqlfence.MaxIdle(1500*time.Microsecond+time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got := limit(); got != "60002ms" {
		t.Errorf("inside: %s, want 60002ms, rounded up", got)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := limit(); got != before {
		t.Errorf("afterwards: %s, want %s as before", got, before)
	}
}

func TestWaitForTheRowEndsWithContext(t *testing.T) {
	db := database(t)
	tx43 := begin(t, db)
	if err := sqlfence.Admit(t.Context(), tx43, "r", 43); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	tx44 := begin(t, db)
	go func() { waiting <- sqlfence.Admit(ctx, tx44, "r", 44) }()
	waitBlocked(t, db, 1)
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("have %v, want context.Canceled", err)
	}
}

func TestMarksBelongToResourceAndLock(t *testing.T) {
	db := database(t)
	admit := func(resource string, token fence.Token, opts ...sqlfence.Option) error {
		return sqlfence.NewStore(db, opts...).Admit(t.Context(), resource, token)
	}
	left, right := sqlfence.Lock("/locks/left"), sqlfence.Lock("/locks/right")
	for _, err := range []error{
		admit("r", 900, left), admit("r", 5, right), admit("r", 3), admit("other", 1, left),
		// Names are bytes: these two look alike.
		admit("caf\u00e9", 9), admit("cafe\u0301", 8),
	} {
		if err != nil {
			t.Errorf("a mark of another resource or lock was compared: %v", err)
		}
	}
	err := admit("r", 899, left)
	wantStale(t, err, 899, 900)
	var stale *fence.StaleError
	if errors.As(err, &stale) && stale.Lock != "/locks/left" {
		t.Errorf("refused under lock %q", stale.Lock)
	}
}

func TestBadInputIsRefusedBeforeTheDatabaseSeesIt(t *testing.T) {
	db := database(t)
	tx := begin(t, db)
	for name, c := range map[string]struct {
		resource string
		token    fence.Token
		opts     []sqlfence.Option
		want     error
	}{
		"zero token":         {"r", 0, nil, fence.ErrInvalidToken},
		"token over BIGINT":  {"r", fence.MaxToken + 1, nil, fence.ErrInvalidToken},
		"no resource":        {"", 1, nil, fence.ErrInvalidResource},
		"zero byte":          {"a\x00", 1, nil, fence.ErrInvalidResource},
		"not UTF-8":          {"\xff", 1, nil, fence.ErrInvalidResource},
		"long resource":      {strings.Repeat("r", fence.MaxNameBytes+1), 1, nil, fence.ErrInvalidResource},
		"long lock":          {"r", 1, []sqlfence.Option{sqlfence.Lock(strings.Repeat("l", fence.MaxNameBytes+1))}, sqlfence.ErrInvalidOption},
		"no table":           {"r", 1, []sqlfence.Option{sqlfence.Table("")}, sqlfence.ErrInvalidOption},
		"quotes in table":    {"r", 1, []sqlfence.Option{sqlfence.Table(`x"; DROP TABLE writes; --`)}, sqlfence.ErrInvalidOption},
		"three parts":        {"r", 1, []sqlfence.Option{sqlfence.Table("a.b.c")}, sqlfence.ErrInvalidOption},
		"long table":         {"r", 1, []sqlfence.Option{sqlfence.Table(strings.Repeat("t", 64))}, sqlfence.ErrInvalidOption},
		"negative idle time": {"r", 1, []sqlfence.Option{sqlfence.MaxIdle(-1)}, sqlfence.ErrInvalidOption},
		"idle time too long": {"r", 1, []sqlfence.Option{sqlfence.MaxIdle(1 << 62)}, sqlfence.ErrInvalidOption},
		"no attempts":        {"r", 1, []sqlfence.Option{sqlfence.Attempts(0)}, sqlfence.ErrInvalidOption},
	} {
		if err := sqlfence.Admit(t.Context(), tx, c.resource, c.token, c.opts...); !errors.Is(err, c.want) {
			t.Errorf("%s: Admit: %v, want %v", name, err, c.want)
		}
		if err := sqlfence.NewStore(db, c.opts...).Admit(t.Context(), c.resource, c.token); !errors.Is(err, c.want) {
			t.Errorf("%s: store: %v, want %v", name, err, c.want)
		}
		unreachable := func(*sql.Tx) error { t.Errorf("%s: fn ran", name); return nil }
		if err := sqlfence.WithTx(t.Context(), db, c.resource, c.token, unreachable, c.opts...); !errors.Is(err, c.want) {
			t.Errorf("%s: WithTx: %v, want %v", name, err, c.want)
		}
	}
	// A statement that had failed would have ended the transaction.
	if err := sqlfence.Admit(t.Context(), tx, strings.Repeat("r", fence.MaxNameBytes), 1,
		sqlfence.Lock(strings.Repeat("l", fence.MaxNameBytes))); err != nil {
		t.Errorf("the longest names: %v", err)
	}
}
