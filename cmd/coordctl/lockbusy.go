package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

// conflictError says that others have the lock. Its exit code is the user's.
type conflictError struct {
	text string
	code int
	err  error
}

func (e *conflictError) Error() string { return e.text }
func (e *conflictError) Unwrap() error { return e.err }

// notAcquired says why there is no lock. What was not reached in time is said by
// the caller.
func (o *lockOptions) notAcquired(ctx context.Context, e *env, c *client.Client, path, what string, err error) error {
	var busy *lock.BusyError
	switch {
	case errors.As(err, &busy):
		info := inspect(ctx, c, path)
		if first := slices.Concat(info.Holders, info.Waiters); len(first) > 0 {
			if k := contenderKind(first[0].Node); k != "" && k != o.kind() {
				return fmt.Errorf("%w: %s belongs to a %s, and this is a %s%s", lock.ErrOtherKind, first[0].Node, k, o.kind(), kindHint(path))
			}
		}
		return o.conflict(e, busyText(busy), busy)
	case o.wait > 0 && errors.Is(err, context.DeadlineExceeded):
		text := fmt.Sprintf("%s within %s", what, o.wait)
		if info := inspect(ctx, c, path); len(info.Holders) > 0 {
			busy = &lock.BusyError{Path: path, Holder: info.Holders[0], Queue: len(info.Waiters), Limit: info.Limit}
			return o.conflict(e, text+": "+strings.TrimPrefix(busyText(busy), "lock "+path+": "), busy)
		}
		return o.conflict(e, text, lock.ErrBusy)
	case errors.Is(err, lock.ErrOtherKind):
		return fmt.Errorf("%w%s", err, kindHint(path))
	case errors.Is(err, lock.ErrLimitMismatch):
		return fmt.Errorf("%w\nhint: all contenders must say the same --slots; it can change when nobody holds a slot or waits", err)
	default:
		return err
	}
}

// conflict ends the program with the code that the user has chosen. For people
// it is a note, which they can turn off.
func (o *lockOptions) conflict(e *env, text string, err error) error {
	if e.isJSON() {
		return &conflictError{text, o.conflictCode, err}
	}
	e.note("%s", text)
	return exitError(o.conflictCode)
}

// inspectPatience bounds the question who has the lock.
const inspectPatience = time.Second

// inspect says who has the lock. It is empty if nobody has it any more or it
// cannot be found out soon.
func inspect(ctx context.Context, c *client.Client, path string) lock.Info {
	ctx, cancel := context.WithTimeout(ctx, inspectPatience)
	defer cancel()
	info, err := lock.Inspect(ctx, c, path)
	if err != nil {
		return lock.Info{}
	}
	return info
}

// busyText says who holds the lock, since when, and how many wait already.
func busyText(b *lock.BusyError) string {
	s := b.Error()
	switch {
	case !b.Holder.Acquired.IsZero():
		s += fmt.Sprintf(", held since %s (%s ago)", timestamp(b.Holder.Acquired.UnixMilli()), ago(time.Since(b.Holder.Acquired)))
	case !b.Holder.Since.IsZero():
		s += fmt.Sprintf(", in line since %s (%s ago)", timestamp(b.Holder.Since.UnixMilli()), ago(time.Since(b.Holder.Since)))
	}
	return s
}
