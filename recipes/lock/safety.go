package lock

import (
	"context"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
)

// EfficiencyLock saves work: without it the same thing would now and then be done
// twice, which costs time and does no harm. See [Efficiency].
type EfficiencyLock struct{ m *Mutex }

// Efficiency names a lock for work that may be done twice. The function that runs
// under it gets no token, so what it writes cannot be fenced: when its process is
// paused for too long another runs beside it. Take [Correct] where that must not
// happen. Both are the Mutex of the path.
func Efficiency(c *client.Client, path string, opts ...Option) EfficiencyLock {
	return EfficiencyLock{New(c, path, opts...)}
}

// Do runs fn while the lock is held; see [Mutex.Do].
func (l EfficiencyLock) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return l.m.Do(ctx, func(ctx context.Context, _ *Handle) error { return fn(ctx) })
}

// CorrectLock protects a resource that has to check the token. See [Correct].
type CorrectLock struct{ m *Mutex }

// Correct names a lock for work that must not be done by a former holder. The
// function that runs under it gets the token, as a parameter of its own so that
// forgetting it takes an effort: hand it to the resource with every write
// (package fence and what is below it).
func Correct(c *client.Client, path string, opts ...Option) CorrectLock {
	return CorrectLock{New(c, path, opts...)}
}

// Do runs fn while the lock is held; see [Mutex.Do].
func (l CorrectLock) Do(ctx context.Context, fn func(ctx context.Context, token fence.Token) error) error {
	return l.m.Do(ctx, func(ctx context.Context, h *Handle) error { return fn(ctx, h.FencingToken()) })
}
