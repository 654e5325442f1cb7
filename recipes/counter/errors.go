package counter

import (
	"errors"
	"fmt"
)

// Errors, besides those of package client and of the caller's context.
var (
	// ErrOverflow is returned when the sum does not fit 64 bits. It comes as an
	// *OverflowError.
	ErrOverflow = errors.New("counter: the sum does not fit 64 bits")
	// ErrContent is returned when the znode holds something else than a number.
	// It comes as a *ContentError.
	ErrContent = errors.New("counter: the content is not a number")
)

// OverflowError says what could not be added to what. It matches ErrOverflow.
// Nothing was changed.
type OverflowError struct {
	Path       string
	Now, Delta int64
}

// Error names the counter and the numbers.
func (e *OverflowError) Error() string {
	return fmt.Sprintf("counter %s: %d%+d does not fit 64 bits", e.Path, e.Now, e.Delta)
}

// Is makes the error match ErrOverflow.
func (e *OverflowError) Is(target error) bool { return target == ErrOverflow }

// ContentError says what stands where a number should be. It matches ErrContent.
// Nothing was changed.
type ContentError struct {
	Path string
	Text string // the beginning of what is there
	Size int    // bytes
}

// Error names the counter and shows the beginning of the content.
func (e *ContentError) Error() string {
	return fmt.Sprintf("counter %s: the content is not a number of 64 bits: %q (%d bytes)", e.Path, e.Text, e.Size)
}

// Is makes the error match ErrContent.
func (e *ContentError) Is(target error) bool { return target == ErrContent }
