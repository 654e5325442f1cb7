package sqlfence_test

import (
	"database/sql"
	"testing"

	"github.com/coordd/coord/fence/sqlfence"
)

func TestRepeatReturnsTheStoredResult(t *testing.T) {
	db := database(t)
	runs := 0
	apply := func(tx *sql.Tx) ([]byte, error) { runs++; return []byte("receipt 7"), write(t.Context(), 34)(tx) }
	first, err := sqlfence.Once(t.Context(), db, sqlfence.Operation{ID: "pay-7", Resource: "r", Token: 34}, apply)
	if err != nil || string(first.Data) != "receipt 7" || first.Token != 34 || first.Repeated {
		t.Fatalf("first: %+v, %v", first, err)
	}
	again, err := sqlfence.Once(t.Context(), db, sqlfence.Operation{ID: "pay-7", Resource: "r", Token: 35}, apply)
	if err != nil || string(again.Data) != "receipt 7" || again.Token != 34 || !again.Repeated {
		t.Fatalf("again: %+v, %v", again, err)
	}
	if runs != 1 {
		t.Errorf("fn ran %d times", runs)
	}
	wantWrites(t, db, 1)
}
