// Package grpcfence carries fencing tokens over gRPC: a client's interceptor sends
// the token of the lock it holds, a service's interceptor refuses one that is
// older than the newest it has seen.
//
// # What it promises
//
// A call that the server's interceptor lets through carried a token that was not
// below the mark of its resource, and the mark is at least that token now. Inside
// one process no call of an older holder overlaps with one of a newer holder: the
// newer one cancels the context of the older, waits until it has ended, and only
// then begins. The mark is as durable as the store that keeps it: package
// boltfence for one process, sqlfence.NewStore for several.
//
// # What it does not
//
// A handler that ignores its context makes the next holder wait. Where several
// processes serve one resource they share the marks through the store, but not the
// waiting: the write itself should be fenced then (package sqlfence).
//
// Tokens are no authentication: whoever may call the service can make one up.
//
// # How to use it
//
// The service:
//
//	guard := grpcfence.NewGuard(marks, func(_ context.Context, method string, req any) string {
//		if r, ok := req.(*reportpb.PutRequest); ok {
//			return r.GetName()
//		}
//		return "" // not guarded
//	})
//	s := grpc.NewServer(grpc.UnaryInterceptor(guard.Unary), grpc.StreamInterceptor(guard.Stream))
//
// The client, with calls made in the context of a lock's handle:
//
//	conn, err := grpc.NewClient(target, grpc.WithUnaryInterceptor(grpcfence.Client{}.Unary), ...)
//
// # When the lock is lost
//
// The call's context is done, since it is that of the lock's handle; a call that
// is on its way is refused with a *fence.StaleError once a newer holder has been
// there: stop, do not repeat.
//
// # How an operator sees it
//
// Refusals have code FAILED_PRECONDITION with an ErrorInfo of domain
// "coord.fence", reason STALE_TOKEN and both tokens in its metadata. The metadata
// of calls are fencing-token and fencing-lock-bin.
package grpcfence
