package main

import (
	"errors"
	"slices"

	"github.com/coordd/coord/client"
)

// Outcomes of writes that have failed, for scripts.
const (
	outcomeNotDone   = "notDone"
	outcomeMaybeDone = "maybeDone"
)

// writers are the commands that make one write, and writes the calls of the
// client that they make. deleteall makes many: some may be done and others not.
var (
	writers = []string{"coordctl set", "coordctl create", "coordctl delete", "coordctl txn", "coordctl acl set"}
	writes  = []string{"dial", "create", "set", "delete", "set acl", "txn"}
)

// outcome says what is known of the write that command was to make; "" if it is
// none, or if the error came after the write was done.
func outcome(command string, err error) string {
	var ce *client.Error
	if restore := (*restoreFailed)(nil); errors.As(err, &restore) {
		return restore.outcome()
	}
	if !slices.Contains(writers, command) || !errors.As(err, &ce) || !slices.Contains(writes, ce.Op) {
		return ""
	}
	if ce.Outcome == client.MaybeDone || errors.Is(err, client.ErrUnknownOutcome) {
		return outcomeMaybeDone
	}
	return outcomeNotDone
}
