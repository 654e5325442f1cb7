package sqlfence_test

import (
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/sqlfence"
)

func TestMarksBelongToResourceAndLock(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		admit := func(resource string, token fence.Token, opts ...sqlfence.Option) error {
			return db.store(opts...).Admit(t.Context(), resource, token)
		}
		left, right := sqlfence.Lock("/locks/left"), sqlfence.Lock("/locks/right")
		for _, err := range []error{admit("r", 900, left), admit("r", 5, right), admit("r", 3), admit("other", 1, left)} {
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
	})
}

// Names are bytes, whatever a language makes of them: those of a group look, or
// compare in some collation, alike.
func TestNamesCompareByTheirBytes(t *testing.T) {
	names := []string{
		"caf\u00e9", "cafe\u0301", "cafe", "CAFE",
		"stra\u00dfe", "strasse",
		"a", "a ", "a\t", " a", "A", "\u00e0", "a\u00ad", "a\u200b",
		"%", "_", "'", "\\", "\\'", `"`, "`", "?", "$1", "-- ", "\n", "\x1a",
		"1", "01", "1.0", "\U0001F512", "\ufffd",
		strings.Repeat("n", fence.MaxNameBytes), strings.Repeat("n", fence.MaxNameBytes-1) + "N",
	}
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		for round := range 2 {
			for i, name := range names {
				token := fence.Token(1000 - i + 1000*round) // falls from name to name
				if err := db.store().Admit(t.Context(), name, token); err != nil {
					t.Errorf("resource %q: %v", name, err)
				}
				if err := db.store(sqlfence.Lock(name)).Admit(t.Context(), "r", token); err != nil {
					t.Errorf("lock %q: %v", name, err)
				}
				op := sqlfence.Operation{ID: name, Resource: name, Token: token}
				got, err := db.once(t.Context(), op, func(*sql.Tx) ([]byte, error) { return []byte(name), nil })
				if err != nil || string(got.Data) != name || got.Repeated != (round == 1) {
					t.Errorf("operation %q: %.80q, repeated %v, %v", name, got.Data, got.Repeated, err)
				}
			}
		}
		if n := db.number(t, "SELECT count(*) FROM coord_fence"); n != int64(2*len(names)) {
			t.Errorf("%d marks of %d resources and as many locks", n, len(names))
		}
	})
}

// badOptions are invalid everywhere.
var badOptions = map[string]sqlfence.Option{
	"long lock":          sqlfence.Lock(strings.Repeat("l", fence.MaxNameBytes+1)),
	"no table":           sqlfence.Table(""),
	"quotes in table":    sqlfence.Table(`x"; DROP TABLE writes; --`),
	"other quotes":       sqlfence.Table("x`; DROP TABLE writes; -- "),
	"three parts":        sqlfence.Table("a.b.c"),
	"long table":         sqlfence.Table(strings.Repeat("t", 64)),
	"bad operations":     sqlfence.OperationsTable("a b"),
	"one table for both": sqlfence.OperationsTable(sqlfence.DefaultTable),
	"negative idle time": sqlfence.MaxIdle(-1),
	"idle time too long": sqlfence.MaxIdle(1 << 62),
	"no attempts":        sqlfence.Attempts(0),
	"no such database":   sqlfence.Dialect(99),
	"negative database":  sqlfence.Dialect(-1),
}

func TestBadInputIsRefusedBeforeTheDatabaseSeesIt(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		tx := db.begin(t)
		refused := func(name, resource string, token fence.Token, want error, opts ...sqlfence.Option) {
			t.Helper()
			unreachable := func(*sql.Tx) error { t.Errorf("%s: fn ran", name); return nil }
			once := func(tx *sql.Tx) ([]byte, error) { return nil, unreachable(tx) }
			opts = slices.Concat(db.opts(nil), opts)
			onceErr := want
			if resource != "" { // which is for fn to admit
				_, onceErr = sqlfence.Once(t.Context(), db.DB, sqlfence.Operation{ID: "o", Resource: resource, Token: token}, once, opts...)
			}
			for call, err := range map[string]error{
				"Admit":  sqlfence.Admit(t.Context(), tx, resource, token, opts...),
				"store":  sqlfence.NewStore(db.DB, opts...).Admit(t.Context(), resource, token),
				"WithTx": sqlfence.WithTx(t.Context(), db.DB, resource, token, unreachable, opts...),
				"Once":   onceErr,
			} {
				if !errors.Is(err, want) {
					t.Errorf("%s: %s: %v, want %v", name, call, err, want)
				}
			}
		}
		refused("zero token", "r", 0, fence.ErrInvalidToken)
		refused("token over BIGINT", "r", fence.MaxToken+1, fence.ErrInvalidToken)
		refused("no resource", "", 1, fence.ErrInvalidResource)
		refused("zero byte", "a\x00", 1, fence.ErrInvalidResource)
		refused("not UTF-8", "\xff", 1, fence.ErrInvalidResource)
		refused("long resource", strings.Repeat("r", fence.MaxNameBytes+1), 1, fence.ErrInvalidResource)
		for name, opt := range badOptions {
			refused(name, "r", 1, sqlfence.ErrInvalidOption, opt)
		}
		// A statement that had failed would have ended the transaction.
		if err := db.admit(t.Context(), tx, strings.Repeat("r", fence.MaxNameBytes), 1,
			sqlfence.Lock(strings.Repeat("l", fence.MaxNameBytes))); err != nil {
			t.Errorf("the longest names: %v", err)
		}
	})
}

func TestBadOptionsAreRefusedByTheOthersToo(t *testing.T) {
	for name, opt := range badOptions {
		if err := sqlfence.Migrate(t.Context(), nil, opt); !errors.Is(err, sqlfence.ErrInvalidOption) {
			t.Errorf("%s: Migrate: %v", name, err)
		}
		if _, err := sqlfence.Forget(t.Context(), nil, 1, opt); !errors.Is(err, sqlfence.ErrInvalidOption) {
			t.Errorf("%s: Forget: %v", name, err)
		}
	}
}
