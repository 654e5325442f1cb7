package client

import (
	"context"
	"errors"
)

// WriteSettled does one operation, or several in one transaction, and returns
// only when it is certain whether they were done, or when the session is over.
// If ctx ends first the write is withdrawn on the session's number line and the
// true outcome is waited for: the results with a nil error if it had been done
// already, else an error that matches the context's and ErrCancelled. It can
// therefore return much later than ctx ends; that wait is bounded by the life
// of the session. Recipes use it where an unknown outcome would leave something
// behind.
func (c *Client) WriteSettled(ctx context.Context, ops ...Op) ([]OpResult, error) {
	w, name, path, err := c.prepareWrite(ops)
	if err != nil {
		return nil, err
	}
	s := c.session
	w.done = make(chan struct{})
	if err := ctx.Err(); err != nil {
		return nil, s.left(name, path, &w.call, err, false)
	}
	if err := s.submit(&w.call); err != nil {
		return nil, located(err, name, path)
	}
	left, sent := s.await(ctx, &w.call)
	if left != nil && !sent {
		return nil, s.left(name, path, &w.call, left, false)
	}
	<-w.done
	err = s.outcome(name, path, &w.call)
	var e *Error
	if left != nil && errors.Is(err, ErrCancelled) && errors.As(err, &e) {
		e.Err = &interrupted{left, ErrCancelled}
	}
	return c.results(w.reply), c.txnError(err, ops)
}

// WriteAsync does one operation, or several in one transaction, without waiting
// and without a context: the write is done as soon as the session can, or fails
// when the session is over. done is called with the outcome by the goroutine
// that receives answers, so it must not block and must not wait for another
// call of this client; it may be nil. Calls are done in the order they were
// made. How many are under way is for the caller to bound.
//
// WriteAsync returns an error, and done is not called, if the write is malformed
// or the session is over already.
func (c *Client) WriteAsync(done func([]OpResult, error), ops ...Op) error {
	w, name, path, err := c.prepareWrite(ops)
	if err != nil {
		return err
	}
	w.fn = func(call *call) {
		if done != nil {
			done(c.results(call.reply), c.txnError(c.session.outcome(name, path, call), ops))
		}
	}
	if err := c.session.submit(&w.call); err != nil {
		return located(err, name, path)
	}
	return nil
}

// GetAsync reads a node without waiting. done is as for WriteAsync.
func (c *Client) GetAsync(path string, done func(Node, error), opts ...ReadOption) error {
	r, err := c.newRead("get", path, opts)
	if err != nil {
		return err
	}
	r.fn = func(call *call) {
		if err := c.session.outcome("get", path, call); err != nil {
			done(Node{}, err)
			return
		}
		done(nodeFromRead(path, call.reply), nil)
	}
	if err := c.session.submit(&r.call); err != nil {
		return located(err, "get", path)
	}
	return nil
}

// prepareWrite makes the call for operations that go over the session.
func (c *Client) prepareWrite(ops []Op) (w *writeCall, name, path string, err error) {
	switch {
	case c.session.plain:
		err = &Error{Op: opTxn, Err: ErrBadArguments, Index: -1, Detail: "this needs a client with a session"}
	case len(ops) == 0:
		err = &Error{Op: opTxn, Err: ErrBadArguments, Index: -1, Detail: "no operation"}
	case len(ops) > 1:
		w, err = c.multi(ops)
		name = opTxn
	default:
		w, name, path = newWrite(), opName(ops[0].kind), ops[0].path
		if e := ops[0].toProto(c.root(), &w.op); e != nil {
			err = &Error{Op: name, Path: path, Err: e, Index: -1}
		}
	}
	return w, name, path, err
}
