package sqlfence

import (
	"strconv"
	"strings"
)

// The numbers of errors that are told apart.
const (
	mysqlRecordChanged    = 1020 // MariaDB with innodb_snapshot_isolation: newer than what the transaction sees
	mysqlLockWaitTimeout  = 1205
	mysqlDeadlock         = 1213
	mysqlQueryInterrupted = 1317
)

// mysqlVerdict calls refused only what is about a constraint: other errors of a
// commit may come from a server that goes down or loses its disk.
func mysqlVerdict(err error) Verdict {
	number, state, ok := mysqlCode(err)
	if !ok {
		return Unclear
	}
	switch {
	case number == mysqlDeadlock, number == mysqlLockWaitTimeout, number == mysqlRecordChanged:
		return Repeatable
	case state == "40000", state == "40001": // rolled back, by a cluster for instance
		return Repeatable
	case number == mysqlQueryInterrupted:
		return Canceled
	case strings.HasPrefix(state, "23"):
		return Refused
	default:
		return Unclear
	}
}

// mysqlCode returns the server's number and SQLSTATE in err. The driver
// (go-sql-driver/mysql) has them in fields, which cannot be reached without
// importing it, and at the beginning of the text, "Error 1213 (40001): …".
func mysqlCode(err error) (number int, state string, ok bool) {
	for err != nil {
		if number, state, ok = parseMySQLCode(err.Error()); ok {
			return number, state, true
		}
		switch wrapper := err.(type) { //nolint:errorlint // this is the walk itself
		case interface{ Unwrap() error }:
			err = wrapper.Unwrap()
		case interface{ Unwrap() []error }:
			for _, inner := range wrapper.Unwrap() {
				if number, state, ok = mysqlCode(inner); ok {
					return number, state, true
				}
			}
			return 0, "", false
		default:
			return 0, "", false
		}
	}
	return 0, "", false
}

// parseMySQLCode reads the beginning of a text. Old servers and drivers leave
// the SQLSTATE out.
func parseMySQLCode(text string) (number int, state string, ok bool) {
	code, _, found := strings.Cut(text, ": ")
	code, prefixed := strings.CutPrefix(code, "Error ")
	if !found || !prefixed {
		return 0, "", false
	}
	digits, rest, _ := strings.Cut(code, " ")
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return 0, "", false
	}
	if len(rest) == len("(40001)") && rest[0] == '(' && rest[6] == ')' {
		return int(n), rest[1:6], true
	}
	return int(n), "", rest == ""
}
