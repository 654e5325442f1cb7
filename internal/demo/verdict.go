package demo

import (
	"errors"
	"fmt"
	"strings"
)

// What a demonstration returns if a promise did not hold. With the layer that
// carries the promise left out it must be just the one error.
var (
	// ErrOldOverNew is returned when a former holder has written after a newer
	// one.
	ErrOldOverNew = errors.New("old over new")
	// ErrNotTold is returned when a former holder's write was refused but its
	// context had not been cancelled before.
	ErrNotTold = errors.New("not told")
	// ErrDuplicateWork is returned when two have done the same work, although
	// only one of them may have changed anything by it.
	ErrDuplicateWork = errors.New("duplicate work")
	// ErrLogicalRepeat is returned when one operation was applied twice.
	ErrLogicalRepeat = errors.New("logical repeat")
	// ErrNeverRun is returned when a period of a job has passed without a run.
	ErrNeverRun = errors.New("never run")
	// ErrMoneyLost is returned when the sum of all balances has changed.
	ErrMoneyLost = errors.New("money lost")
	// ErrDoubleOwner is returned when two were in at the same time.
	ErrDoubleOwner = errors.New("double owner")
	// ErrGrantLost is returned when a lock was granted and then forgotten.
	ErrGrantLost = errors.New("grant lost")
	// ErrForeignRelease is returned when a release took the lock from another.
	ErrForeignRelease = errors.New("foreign release")
	// ErrHerd is returned when a release has woken more than the next in line.
	ErrHerd = errors.New("thundering herd")
	// ErrUnexpected is returned when something else came out than was scripted.
	ErrUnexpected = errors.New("unexpected outcome")
)

// broken ends the timeline with an anomaly and returns it as an error.
func (l *timeline) broken(anomaly error, format string, args ...any) error {
	detail := fmt.Sprintf(format, args...)
	l.say("verdict", "%s: %s", strings.ToUpper(anomaly.Error()), detail)
	return fmt.Errorf("%w: %s", anomaly, detail)
}

// kept ends the timeline with the promise that held.
func (l *timeline) kept(format string, args ...any) error {
	l.say("verdict", format, args...)
	return nil
}
