package renewal

import "context"

// Within is a child of ctx that is also done, with the same cause, when other is.
func Within(ctx, other context.Context) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return inner, func() {
		stop()
		cancel(context.Canceled)
	}
}
