package fence

import (
	"errors"
	"fmt"
)

// ErrStale is returned when a token is behind the largest that the resource has
// seen. See [StaleError] for the numbers.
var ErrStale = errors.New("fence: stale token")

// StaleError says how far behind the caller is. It matches [ErrStale]. It is
// final: the same token will be refused for ever, so the caller must stop, not
// repeat.
type StaleError struct {
	Resource string
	Lock     string // the lock whose mark was compared; empty where a resource has one mark
	Got      Token  // the token of the caller
	Seen     Token  // the largest token admitted before; equal to Got only in strict mode
}

// Error names the resource and both tokens.
func (e *StaleError) Error() string {
	resource := fmt.Sprintf("%q", e.Resource)
	if e.Lock != "" {
		resource += fmt.Sprintf(" under lock %q", e.Lock)
	}
	if e.Got == e.Seen {
		return fmt.Sprintf("fence: token %s was already used for %s", e.Got, resource)
	}
	return fmt.Sprintf("fence: stale token for %s: %s < %s, a newer holder has been here", resource, e.Got, e.Seen)
}

// Is makes errors.Is(err, ErrStale) true.
func (e *StaleError) Is(target error) bool { return target == ErrStale }
