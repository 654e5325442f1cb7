package hold

import "context"

// checked looks whenever it is asked, so that the first question after a pause of
// the process gets the right answer.
type checked struct {
	context.Context
	look func()
}

// Checked is ctx, which calls look before it says whether it is done.
func Checked(ctx context.Context, look func()) context.Context { return checked{ctx, look} }

func (c checked) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

func (c checked) Err() error {
	c.look()
	return c.Context.Err()
}

// Within is a child of ctx that is also done, with the same cause, when the end has
// come; and at once if that is so after a look.
func (e *End) Within(ctx context.Context, look func()) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	follow := func() { cancel(context.Cause(e.ctx)) }
	stop := context.AfterFunc(e.ctx, follow)
	return Checked(inner, func() {
			look()
			if e.ctx.Err() != nil { // follow is called in a moment
				follow()
			}
		}), func() {
			stop()
			cancel(context.Canceled)
		}
}
