package cache

import (
	"errors"
	"fmt"
)

// Errors, besides those of package client and of the caller's context.
var (
	// ErrTooLarge is returned by Run when the copy would not fit its limit. It
	// comes as a *SizeError.
	ErrTooLarge = errors.New("cache: the subtree is larger than the limit")
	// ErrRunning is returned by Run when another Run of the same Cache has not
	// ended.
	ErrRunning = errors.New("cache: it runs already")
)

// SizeError says what did not fit. It matches ErrTooLarge.
type SizeError struct {
	Root        string
	Bytes, Most int64 // Most is the limit
}

// Error names the subtree and the sizes.
func (e *SizeError) Error() string {
	return fmt.Sprintf("cache of %s: %d bytes are more than the limit of %d", e.Root, e.Bytes, e.Most)
}

// Is makes the error match ErrTooLarge.
func (e *SizeError) Is(target error) bool { return target == ErrTooLarge }
