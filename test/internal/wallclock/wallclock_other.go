//go:build !linux || !amd64

package wallclock

import (
	"errors"
	"time"
)

// ErrUnsupported is returned where the clock of a process cannot be set.
var ErrUnsupported = errors.New("cannot set the clock of a process here: only on Linux, amd64")

// Clock is the wall clock of a process.
type Clock struct{}

// Of returns ErrUnsupported.
func Of(int) (*Clock, error) { return nil, ErrUnsupported }

// Step returns ErrUnsupported.
func (*Clock) Step(time.Duration) error { return ErrUnsupported }
