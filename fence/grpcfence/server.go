package grpcfence

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/internal/turns"
)

// Keys of the metadata.
const (
	// TokenKey carries the token, in decimal.
	TokenKey = "fencing-token"
	// LockKey carries the path of the lock that the token is of, which may hold
	// any character. It may be missing.
	LockKey = "fencing-lock-bin"
)

// Guard has the interceptors of a service. It may be used from any goroutine. All
// calls that can change one resource must go through one Guard.
type Guard struct {
	guard    turns.Guard
	resource Resource
}

// Resource names what a call is about; "" lets the call through unguarded. For a
// streaming call req is nil.
type Resource func(ctx context.Context, fullMethod string, req any) string

// Option changes what a Guard asks for.
type Option func(*turns.Guard)

// OfLock says which lock guards the resources. A call that names another one is
// refused (INVALID_ARGUMENT): its token cannot be compared.
func OfLock(lock string) Option { return func(g *turns.Guard) { g.Lock = lock } }

// PerLock keeps a mark for each lock that a call names, for resources that several
// locks guard. The store must be a [fence.LockStore], and a call without [LockKey]
// is refused. Name the locks that are allowed; a call that names another one is
// refused, since any new name would begin with no mark at all.
func PerLock(locks ...string) Option { return func(g *turns.Guard) { g.SetLocks(locks) } }

// NewGuard returns interceptors that let a call through only with a token that
// store admits for the resource. The context that the handler sees is done, with a
// *fence.StaleError as its cause, when a newer token was admitted, and carries the
// grant ([fence.FromContext]).
//
// Refusals: FAILED_PRECONDITION if the token is missing or stale, INVALID_ARGUMENT
// if it is no token or of another lock, UNAVAILABLE if the store fails.
//
// NewGuard panics if options contradict each other or the store.
func NewGuard(store fence.Store, resource Resource, opts ...Option) *Guard {
	g := &Guard{resource: resource}
	g.guard.Store = store
	for _, opt := range opts {
		opt(&g.guard)
	}
	if err := g.guard.Check(); err != nil {
		panic("grpcfence: " + err.Error())
	}
	return g
}

// Unary is a grpc.UnaryServerInterceptor.
func (g *Guard) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, leave, err := g.enter(ctx, info.FullMethod, req)
	if err != nil {
		return nil, err
	}
	defer leave()
	return handler(ctx, req)
}

// Stream is a grpc.StreamServerInterceptor. The token is admitted when the stream
// begins, and the stream counts as one request as long as it lasts.
func (g *Guard) Stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, leave, err := g.enter(s.Context(), info.FullMethod, nil)
	if err != nil {
		return err
	}
	defer leave()
	return handler(srv, &guardedStream{s, ctx})
}

type guardedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *guardedStream) Context() context.Context { return s.ctx }

func (g *Guard) enter(ctx context.Context, method string, req any) (context.Context, func(), error) {
	resource := g.resource(ctx, method, req)
	if resource == "" {
		return ctx, func() {}, nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	lock := ""
	if l := md.Get(LockKey); len(l) > 0 {
		lock = l[0]
	}
	inner, leave, err := g.guard.Enter(ctx, resource, md.Get(TokenKey), lock)
	if err != nil {
		return nil, nil, refusal(err)
	}
	return inner, leave, nil
}

// refusal is the status that fits the error.
func refusal(err error) error {
	var stale *fence.StaleError
	switch {
	case errors.As(err, &stale):
		return staleStatus(stale)
	case errors.Is(err, turns.ErrNoToken), errors.Is(err, turns.ErrNoLock):
		return reasonStatus(codes.FailedPrecondition, reasonMissing, err.Error())
	case errors.Is(err, turns.ErrOtherLock), errors.Is(err, fence.ErrInvalidToken), errors.Is(err, fence.ErrInvalidResource):
		return reasonStatus(codes.InvalidArgument, reasonInvalid, err.Error())
	case errors.Is(err, context.Canceled):
		return reasonStatus(codes.Canceled, reasonWaiting, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return reasonStatus(codes.DeadlineExceeded, reasonWaiting, err.Error())
	default:
		// The store's own words may name files and hosts: they are not for callers.
		return reasonStatus(codes.Unavailable, reasonStore, "the fencing marks cannot be read")
	}
}
