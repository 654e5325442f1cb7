package sqlfence

import (
	"errors"
	"strings"
)

// The SQLSTATEs that are told apart. By the first two PostgreSQL asks for the
// whole transaction again.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	completionUnknown    = "40003"
	queryCanceled        = "57014"
)

// sqlState returns the SQLSTATE in err, or "". The drivers for PostgreSQL (pgx,
// lib/pq) have an error type with this method.
func sqlState(err error) string {
	var coded interface{ SQLState() string }
	if !errors.As(err, &coded) {
		return ""
	}
	return coded.SQLState()
}

// repeatable tells whether the transaction that failed with err is rolled back
// and may succeed if it begins again.
func repeatable(err error) bool {
	if errors.Is(err, ErrUnknownOutcome) {
		return false
	}
	state := sqlState(err)
	return state == serializationFailure || state == deadlockDetected
}

// refusedByServer tells whether err, from a commit, is the server's own word
// that nothing was committed. Codes about the connection and about the server
// going down (08, 57) and completionUnknown are no such word.
func refusedByServer(err error) bool {
	state := sqlState(err)
	return state != "" && state != completionUnknown && !strings.HasPrefix(state, "08") && !strings.HasPrefix(state, "57")
}
