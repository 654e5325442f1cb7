package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
)

// admins prepares admin calls; nothing is dialed before the first one.
func (e *env) admins() (*client.Admin, error) {
	t, err := e.resolve()
	if err != nil {
		return nil, err
	}
	opts, err := t.options(e)
	if err != nil {
		return nil, err
	}
	a, err := client.NewAdmin(strings.Join(t.Endpoints, ","), opts...)
	return a, wrongTarget(err)
}

// closeQuietly ends what holds no session: there is nobody to tell.
func closeQuietly(c io.Closer) { _ = c.Close() }

// admin calls f with the first endpoint that answers. op names the call in
// errors.
func (e *env) admin(ctx context.Context, op string, f func(context.Context, coordpb.AdminClient) error) error {
	return e.adminMany(ctx, op, func(ctx context.Context, a coordpb.AdminClient, _ func()) error { return f(ctx, a) })
}

// adminMany is for several requests; f calls answered after each.
func (e *env) adminMany(ctx context.Context, op string, f func(context.Context, coordpb.AdminClient, func()) error) error {
	a, err := e.admins()
	if err != nil {
		return err
	}
	defer closeQuietly(a)
	p := e.pace(ctx)
	defer p.stop()
	return e.unmask(adminError(op, p.result(f(p.ctx, a.Any(), p.answered))))
}

// adminError names the call, and takes a refusal for what it is.
func adminError(op string, err error) error {
	var ce *client.Error
	if !errors.As(err, &ce) {
		return err
	}
	for _, a := range ce.Tried {
		switch status.Code(a.Err) {
		case codes.PermissionDenied, codes.Unauthenticated:
			return &codedError{exitNotPermitted, fmt.Errorf("%s: %w: %w", op, client.ErrNoAuth, a.Err)}
		default:
		}
	}
	ce.Op = op
	return err
}

// replyError turns an error inside a reply into a Go error.
func replyError(op string, err *coordpb.Error) error {
	if err.GetCode() == coordpb.Code_CODE_OK {
		return nil
	}
	text := fmt.Errorf("%s: %s", op, err.Message)
	switch err.Code {
	case coordpb.Code_CODE_NO_AUTH, coordpb.Code_CODE_AUTH_FAILED:
		return &codedError{exitNotPermitted, text}
	case coordpb.Code_CODE_UNAVAILABLE, coordpb.Code_CODE_NOT_FORMED, coordpb.Code_CODE_NOT_LEADER, coordpb.Code_CODE_SHUTTING_DOWN:
		return &codedError{exitUnreachable, text}
	case coordpb.Code_CODE_TIMEOUT:
		return &codedError{exitTimeout, text}
	case coordpb.Code_CODE_NO_NODE, coordpb.Code_CODE_UNKNOWN_SESSION:
		return &codedError{exitNotFound, text}
	case coordpb.Code_CODE_NODE_EXISTS, coordpb.Code_CODE_NOT_EMPTY, coordpb.Code_CODE_BAD_ARGUMENTS:
		return &codedError{exitPrecondition, text}
	default:
		return &codedError{exitFailed, text}
	}
}

// reason is the innermost part of a transport error, as a person would say it.
func reason(err error) error {
	if err == nil || errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded {
		return errors.New("no answer")
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err
	}
	for _, known := range []string{"connection refused", "i/o timeout", "no such host", "connection reset by peer", "network is unreachable"} {
		if strings.Contains(err.Error(), known) {
			return errors.New(known)
		}
	}
	return err
}

// serverStatus is what one endpoint said about itself.
type serverStatus struct {
	endpoint string
	reply    *coordpb.StatusReply
	err      error
	// asked and answered are when, by this machine's clock.
	asked, answered time.Time
}

// askAll asks every endpoint for its status at the same time and returns what
// has come within the limit.
func (e *env) askAll(ctx context.Context, limit time.Duration) ([]serverStatus, error) {
	a, err := e.admins()
	if err != nil {
		return nil, err
	}
	defer closeQuietly(a)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out := make([]serverStatus, len(a.Endpoints()))
	var wg sync.WaitGroup
	for i, endpoint := range a.Endpoints() {
		wg.Go(func() {
			asked := time.Now()
			reply, err := a.At(endpoint).Status(ctx, &coordpb.StatusRequest{})
			out[i] = serverStatus{endpoint, reply, err, asked, time.Now()}
		})
	}
	wg.Wait()
	return out, nil
}

// unreachable is the error when no endpoint answered, else nil.
func unreachable(op string, all []serverStatus) error {
	e := &client.Error{Op: op, Err: client.ErrUnavailable, Index: -1}
	for _, s := range all {
		if s.err == nil {
			return nil
		}
		if err := adminError(op, s.err); errors.Is(err, client.ErrNoAuth) {
			return err
		}
		e.Tried = append(e.Tried, s.attempt())
	}
	return e
}

// attempt is what came back from an endpoint that gave no answer.
func (s *serverStatus) attempt() client.Attempt {
	var ce *client.Error
	if errors.As(s.err, &ce) && len(ce.Tried) > 0 {
		return ce.Tried[0]
	}
	return client.Attempt{Endpoint: s.endpoint, At: time.Now(), Err: s.err}
}
