package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/tlsfiles"
)

// admins has an admin client for each endpoint, in the order given.
type admins struct {
	endpoints []string
	conns     []*grpc.ClientConn
}

// admins prepares the connections; nothing is dialed before the first call.
func (e *env) admins() (*admins, error) {
	t, err := e.resolve()
	if err != nil {
		return nil, err
	}
	creds, err := t.credentials()
	if err != nil {
		return nil, usagef("%w", err)
	}
	a := &admins{endpoints: t.Endpoints}
	for _, endpoint := range t.Endpoints {
		conn, err := grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(creds(endpoint)))
		if err != nil {
			return nil, errors.Join(usagef("endpoint %s: %w", endpoint, err), a.close())
		}
		a.conns = append(a.conns, conn)
	}
	return a, nil
}

// credentials returns what makes the credentials for an endpoint.
func (t *target) credentials() (func(endpoint string) credentials.TransportCredentials, error) {
	files := tlsfiles.Files{CA: t.CACert, Cert: t.Cert, Key: t.Key}
	if files.Zero() {
		return func(string) credentials.TransportCredentials { return insecure.NewCredentials() }, nil
	}
	if err := files.Validate(false); err != nil {
		return nil, err
	}
	src, err := tlsfiles.Open(files, time.Hour, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	src.Close() // one command does not live to see the files change
	return func(endpoint string) credentials.TransportCredentials {
		name := t.ServerName
		if host, _, err := net.SplitHostPort(endpoint); err == nil && name == "" {
			name = host
		}
		return credentials.NewTLS(src.Client(name))
	}, nil
}

func (a *admins) close() error {
	var errs []error
	for _, c := range a.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// admin calls f with the first endpoint that can be reached.
func (e *env) admin(ctx context.Context, op string, f func(context.Context, coordpb.AdminClient) error) error {
	a, err := e.admins()
	if err != nil {
		return err
	}
	defer a.close()
	ctx, cancel := e.limit(ctx)
	defer cancel()
	var tried []client.Attempt
	for i, conn := range a.conns {
		start := time.Now()
		err := f(ctx, coordpb.NewAdminClient(conn))
		if status.Code(err) != codes.Unavailable {
			return adminError(ctx, op, err)
		}
		tried = append(tried, client.Attempt{Endpoint: a.endpoints[i], At: start, Took: time.Since(start), Err: reason(err)})
	}
	return &client.Error{Op: op, Err: client.ErrUnavailable, Tried: tried, Index: -1}
}

// adminError turns a gRPC status into the errors that decide the exit code.
func adminError(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	sentinel := err
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		sentinel = context.Cause(ctx)
	case codes.Canceled:
		sentinel = context.Canceled
	case codes.PermissionDenied, codes.Unauthenticated:
		sentinel = client.ErrNoAuth
	default:
		return fmt.Errorf("%s: %s", op, status.Convert(err).Message())
	}
	return fmt.Errorf("%s: %w", op, sentinel)
}

// replyError turns an error inside a reply into a Go error.
func replyError(op string, err *coordpb.Error) error {
	if err == nil {
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
	case coordpb.Code_CODE_NO_NODE:
		return &codedError{exitNotFound, text}
	default:
		return &codedError{exitFailed, text}
	}
}

// reason is the innermost part of a transport error, as a person would say it.
func reason(err error) error {
	msg := status.Convert(err).Message()
	if i := strings.LastIndex(msg, "desc = "); i >= 0 {
		msg = strings.Trim(msg[i+len("desc = "):], `"`)
	}
	for _, known := range []string{"connection refused", "i/o timeout", "no such host", "connection reset by peer"} {
		if strings.Contains(msg, known) {
			return errors.New(known)
		}
	}
	return errors.New(msg)
}

// serverStatus is what one endpoint said.
type serverStatus struct {
	endpoint string
	reply    *coordpb.StatusReply
	err      error
}

// askAll asks every endpoint for its status at the same time.
func (e *env) askAll(ctx context.Context) ([]serverStatus, error) {
	a, err := e.admins()
	if err != nil {
		return nil, err
	}
	defer a.close()
	ctx, cancel := e.limit(ctx)
	defer cancel()
	out := make([]serverStatus, len(a.conns))
	var wg sync.WaitGroup
	for i, conn := range a.conns {
		wg.Go(func() {
			reply, err := coordpb.NewAdminClient(conn).Status(ctx, &coordpb.StatusRequest{})
			out[i] = serverStatus{a.endpoints[i], reply, err}
		})
	}
	wg.Wait()
	return out, nil
}

// unreachable is the error when no endpoint answered, else nil.
func unreachable(ctx context.Context, op string, all []serverStatus) error {
	e := &client.Error{Op: op, Err: client.ErrUnavailable, Index: -1}
	for _, s := range all {
		if s.err == nil {
			return nil
		}
		if c := status.Code(s.err); c == codes.PermissionDenied || c == codes.Unauthenticated {
			return adminError(ctx, op, s.err)
		}
		e.Tried = append(e.Tried, client.Attempt{Endpoint: s.endpoint, Err: reason(s.err)})
	}
	return e
}
