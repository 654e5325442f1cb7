package sqlfence_test

import (
	"strings"
	"testing"

	"github.com/coordd/coord/fence/sqlfence"
)

// skipping makes PostgreSQL pass over the first n of what is done to the table of
// operations, as if another session were faster each time.
func skipping(t *testing.T, db *database, what string, n string) {
	t.Helper()
	exec(t, db, "CREATE SEQUENCE passed_over")
	exec(t, db, `CREATE FUNCTION pass_over() RETURNS trigger LANGUAGE plpgsql AS
'BEGIN IF nextval(''passed_over'') <= `+n+` THEN RETURN NULL; END IF; RETURN NEW; END'`)
	exec(t, db, "CREATE TRIGGER pass_over BEFORE "+what+" ON coord_operations FOR EACH ROW EXECUTE FUNCTION pass_over()")
}

// An operation may be there for one statement and gone for the next.
func TestOperationThatIsForgottenMeanwhileIsAppliedAnew(t *testing.T) {
	db := backends[0].migrated(t)
	skipping(t, db, "INSERT", "2")
	got, err := db.once(t.Context(), sqlfence.Operation{ID: "o"}, db.pay(1, []byte("result")))
	wantResult(t, got, err, []byte("result"), 0, false)
	db.wantWrites(t, 1)
}

// A result that is not stored must not look as if it were.
func TestUnstoredResultFailsTheOperation(t *testing.T) {
	db := backends[0].migrated(t)
	skipping(t, db, "UPDATE", "1")
	op := sqlfence.Operation{ID: "o", Resource: "r", Token: 1}
	if _, err := db.once(t.Context(), op, db.pay(1, []byte("result"))); err == nil || !strings.Contains(err.Error(), "0 rows") {
		t.Errorf("have %v, want that no row was changed", err)
	}
	db.wantWrites(t, 0)
	got, err := db.once(t.Context(), op, db.pay(1, []byte("result")))
	wantResult(t, got, err, []byte("result"), 1, false)
}
