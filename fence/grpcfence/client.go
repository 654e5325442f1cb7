package grpcfence

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/coordd/coord/fence"
)

// ErrNoGrant is returned for a call whose context carries no grant: it was not
// made under a lock and must not be sent as if it were.
var ErrNoGrant = errors.New("grpcfence: the call's context carries no grant of a lock")

// Client has the interceptors of a client. The zero value is ready; it may be used
// from any goroutine.
type Client struct {
	// Lock is the lock whose grant is sent; "" is the innermost of those that
	// the context carries.
	Lock string
	// Methods says which calls are made under the lock, by their full method.
	// The others are left alone. Nil is all.
	Methods func(fullMethod string) bool
}

// Unary is a grpc.UnaryClientInterceptor. The error of a call that was refused for
// a stale token is a *fence.StaleError (errors.As) and still has its status.
// Without a grant in the context it is [ErrNoGrant]; if the context has ended it
// is the context's cause: when that is of a lock's handle, the call that the lock
// was for is not sent any more.
func (c Client) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, err := c.outgoing(ctx, method)
	if err != nil {
		return err
	}
	return translate(invoke(ctx, method, req, reply, cc, opts...))
}

// Stream is a grpc.StreamClientInterceptor, as Unary for each message.
func (c Client) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, err := c.outgoing(ctx, method)
	if err != nil {
		return nil, err
	}
	s, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, translate(err)
	}
	return stream{s}, nil
}

type stream struct{ grpc.ClientStream }

func (s stream) RecvMsg(m any) error { return translate(s.ClientStream.RecvMsg(m)) }

func (c Client) outgoing(ctx context.Context, method string) (context.Context, error) {
	if c.Methods != nil && !c.Methods(method) {
		return ctx, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	g, ok := fence.FromContext(ctx)
	if c.Lock != "" {
		g, ok = fence.FromContextFor(ctx, c.Lock)
	}
	if !ok {
		return nil, ErrNoGrant
	}
	if err := g.Token.Validate(); err != nil {
		return nil, err
	}
	ctx = metadata.AppendToOutgoingContext(ctx, TokenKey, g.Token.String())
	if g.Lock != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, LockKey, g.Lock)
	}
	return ctx, nil
}
