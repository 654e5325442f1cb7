package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/client"
)

// dial connects without a session.
func (e *env) dial(ctx context.Context) (*client.Client, error) {
	return e.dialWith(ctx, client.WithoutSession())
}

// dialWith connects within the time limit of one request.
func (e *env) dialWith(ctx context.Context, more ...client.Option) (*client.Client, error) {
	p := e.pace(ctx)
	defer p.stop()
	c, err := e.dialWithin(p, more...)
	return c, e.diagnose(ctx, p.result(err))
}

// dialWithin connects in the time that p leaves. Where nobody listens it fails at
// once; where servers are busy with themselves it goes on trying.
func (e *env) dialWithin(p *pace, more ...client.Option) (*client.Client, error) {
	t, err := e.resolve()
	if err != nil {
		return nil, err
	}
	opts, err := t.options(e)
	if err != nil {
		return nil, err
	}
	for round := 0; ; round++ {
		c, err := client.Dial(p.ctx, strings.Join(t.Endpoints, ","), append(opts, more...)...)
		if round == 0 {
			err = e.unmask(err)
		}
		if err == nil || !mayPass(err) {
			return c, wrongTarget(unanswered(err, t.Endpoints, p.began))
		}
		select {
		case <-p.ctx.Done():
			return nil, unanswered(err, t.Endpoints, p.began)
		case <-time.After(dialPause):
		}
	}
}

// wrongTarget makes endpoints or files that no connection can be made with an
// error of use.
func wrongTarget(err error) error {
	var ce *client.Error
	if errors.Is(err, client.ErrBadArguments) && errors.As(err, &ce) {
		return usagef("%s", ce.Detail)
	}
	return err
}

// unanswered names the endpoints in an error that came before any of them had
// answered, and counts the time of all rounds in one that came after the last.
func unanswered(err error, endpoints []string, began time.Time) error {
	var ce *client.Error
	if !errors.Is(err, client.ErrUnavailable) || !errors.As(err, &ce) {
		return err
	}
	for i := range ce.Tried {
		ce.Tried[i].At, ce.Tried[i].Took = began, time.Since(began)
	}
	if len(ce.Tried) > 0 {
		return err
	}
	for _, e := range endpoints {
		ce.Tried = append(ce.Tried, client.Attempt{Endpoint: e, At: began, Took: time.Since(began)})
	}
	return err
}

// dialPause is the pause before the endpoints are tried again.
const dialPause = 50 * time.Millisecond

// mayPass says that some endpoint has a server that does not take the client at
// the moment, as during an election. One whose cluster is not formed may need a
// person for that.
func mayPass(err error) bool {
	var ce *client.Error
	if !errors.Is(err, client.ErrUnavailable) || !errors.As(err, &ce) {
		return false
	}
	for _, a := range ce.Tried {
		final := errors.As(a.Err, new(*net.OpError)) || strings.HasPrefix(a.Err.Error(), "tls: ") ||
			status.Code(a.Err) == codes.Unimplemented || errors.Is(a.Err, errStranger) || errors.Is(a.Err, client.ErrNotFormed)
		if !final {
			return true
		}
	}
	return false
}

// with runs f, which makes one request, on a connection without a session.
func (e *env) with(ctx context.Context, f func(ctx context.Context, c *client.Client) error) error {
	return e.withMany(ctx, func(ctx context.Context, c *client.Client, _ func()) error { return f(ctx, c) })
}

// withMany runs f on a connection without a session. f may make any number of
// requests, and calls answered after each: the time limit is that of one.
func (e *env) withMany(ctx context.Context, f func(ctx context.Context, c *client.Client, answered func()) error) error {
	p := e.pace(ctx)
	defer p.stop()
	c, err := e.dialWithin(p, client.WithoutSession())
	if err == nil {
		defer closeQuietly(c)
		err = f(p.ctx, c, p.answered)
	}
	return e.diagnose(ctx, p.result(err))
}

// as gives an error of the client the name of the command that made the call.
func as(op string, err error) error {
	var ce *client.Error
	if errors.As(err, &ce) {
		ce.Op = op
	}
	return err
}

// pace bounds each of several requests.
type pace struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	limit  time.Duration
	timer  *time.Timer
	began  time.Time
}

// pace begins with the first request. stop must be called.
func (e *env) pace(ctx context.Context) *pace {
	p := &pace{limit: e.timeout - diagnosisReserve(e.timeout), began: time.Now()}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	p.timer = time.AfterFunc(p.limit, func() { p.cancel(&timeLimitError{e.timeout}) })
	return p
}

// answered gives the next request the full time.
func (p *pace) answered() { p.timer.Reset(p.limit) }

func (p *pace) stop() {
	p.timer.Stop()
	p.cancel(nil)
}

// result adds to err that it is the time limit that ended the request.
func (p *pace) result(err error) error {
	var late *timeLimitError
	if err != nil && errors.As(context.Cause(p.ctx), &late) && errors.Is(err, context.Canceled) {
		return &lateError{late, err}
	}
	return err
}

// lateError is an error of a request that its time limit ended.
type lateError struct {
	*timeLimitError
	err error
}

func (e *lateError) Unwrap() []error { return []error{e.timeLimitError, e.err} }
