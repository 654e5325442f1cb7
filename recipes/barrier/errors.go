package barrier

import (
	"errors"
	"fmt"
)

// Errors, besides those of package client and of the caller's context.
var (
	// ErrMembers is returned when the barrier is in use for another number of
	// members. It comes as a *MembersError.
	ErrMembers = errors.New("barrier: another number of members")
	// ErrRemoved is returned when somebody has deleted the member's entry.
	ErrRemoved = errors.New("barrier: the member's entry was deleted")
	// ErrContent is returned when the barrier's znode holds something else than
	// a barrier's state.
	ErrContent = errors.New("barrier: the content is not that of a barrier")
)

// MembersError says for how many members a barrier is in use. It matches
// ErrMembers.
type MembersError struct {
	Path       string
	Have, Want int // Have is the barrier's, Want the caller's
}

// Error names the barrier and both numbers.
func (e *MembersError) Error() string {
	return fmt.Sprintf("barrier %s: it is in use for %d members, not for %d", e.Path, e.Have, e.Want)
}

// Is makes the error match ErrMembers.
func (e *MembersError) Is(target error) bool { return target == ErrMembers }
