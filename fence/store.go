package fence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Store is the memory of a resource, or of many.
//
// Admit compares t with the largest token admitted for the resource, and raises
// that mark to t, in one atomic step. It returns nil, or a *StaleError if t is
// below the mark (in strict mode: not above it), or a *TokenError, or a
// *ResourceError. With any other error it is unknown whether the mark was
// raised; calling again with the same token is safe except in strict mode.
//
// A store that guards the writes themselves must make the step part of them (as
// package sqlfence does): an Admit that has returned says nothing about what
// happens afterwards.
type Store interface {
	Admit(ctx context.Context, resource string, t Token) error
}

// LockStore is a Store that keeps a mark for each pair of resource and lock, for
// resources that more than one lock guards.
type LockStore interface {
	Store
	// ForLock returns a Store over the same memory for the tokens of one lock.
	ForLock(lock string) Store
}

// MaxNameBytes bounds the name of a resource and that of a lock. Two such names
// fit into one index entry of the databases we write to.
const MaxNameBytes = 1024

// ErrInvalidResource is returned when the name of a resource or lock cannot be
// stored. See [ResourceError] for why.
var ErrInvalidResource = errors.New("fence: invalid resource name")

// ResourceError says why a name cannot be used. It matches [ErrInvalidResource].
type ResourceError struct {
	Name   string
	Reason string
}

// Error names the resource and the reason.
func (e *ResourceError) Error() string {
	name := e.Name
	if len(name) > maxQuoted {
		name = name[:maxQuoted] + "…"
	}
	return fmt.Sprintf("fence: invalid resource name %q: %s", name, e.Reason)
}

// Is makes errors.Is(err, ErrInvalidResource) true.
func (e *ResourceError) Is(target error) bool { return target == ErrInvalidResource }

// ValidateResource returns nil, or a *ResourceError if name is empty, longer
// than [MaxNameBytes], no UTF-8, or contains a zero byte. All stores use this
// rule, so that a name that works in a test works in a database.
func ValidateResource(name string) error {
	if name == "" {
		return &ResourceError{Name: name, Reason: "empty"}
	}
	return ValidateLock(name)
}

// ValidateLock is [ValidateResource] for the name of a lock, which may be empty:
// that is the mark of a resource with one lock.
func ValidateLock(name string) error {
	switch {
	case len(name) > MaxNameBytes:
		return &ResourceError{Name: name, Reason: fmt.Sprintf("longer than %d bytes", MaxNameBytes)}
	case !utf8.ValidString(name):
		return &ResourceError{Name: name, Reason: "not UTF-8"}
	case strings.IndexByte(name, 0) >= 0:
		return &ResourceError{Name: name, Reason: "contains a zero byte"}
	default:
		return nil
	}
}
