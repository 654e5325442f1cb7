package sqlfence

import (
	"errors"
	"strings"
)

// The SQLSTATEs that are told apart. By the first two PostgreSQL asks for the
// whole transaction again; the third one comes of its setting lock_timeout.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
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

// postgresVerdict takes every code for the server's own word, except those about
// the connection and about the server going down (08, 57) and completionUnknown.
func postgresVerdict(err error) Verdict {
	switch state := sqlState(err); {
	case state == serializationFailure, state == deadlockDetected, state == lockNotAvailable:
		return Repeatable
	case state == queryCanceled:
		return Canceled
	case state == "", state == completionUnknown, strings.HasPrefix(state, "08"), strings.HasPrefix(state, "57"):
		return Unclear
	default:
		return Refused
	}
}
