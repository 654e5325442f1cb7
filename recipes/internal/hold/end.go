package hold

import (
	"context"
	"sync"
)

// End is the end of something, which comes once and for good. Whoever sees by one
// method that it has come sees that by all of them. It is safe for concurrent use.
type End struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	lost   chan struct{}

	// mu guards the fields below.
	mu    sync.Mutex
	cause error
	still func() // stops what looks out for the end; nil if there is nothing
}

// NewEnd begins something whose context has the values of base.
func NewEnd(base context.Context) *End {
	e := &End{lost: make(chan struct{})}
	e.ctx, e.cancel = context.WithCancelCause(base)
	return e
}

// Come brings the end about, with the cause, and says by Lost whether it was a
// loss. It returns false if the end had come before.
func (e *End) Come(cause error, lost bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cause != nil {
		return false
	}
	e.cause = cause
	if e.still != nil {
		e.still()
	}
	e.cancel(cause) // what waits for it runs in goroutines of its own, which may need mu
	if lost {
		close(e.lost)
	}
	return true
}

// Cause is why it ended, nil if it has not.
func (e *End) Cause() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cause
}

// Context is done when the end has come, with its cause.
func (e *End) Context() context.Context { return e.ctx }

// Lost is closed when a loss was the end.
func (e *End) Lost() <-chan struct{} { return e.lost }
