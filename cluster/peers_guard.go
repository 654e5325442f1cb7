package cluster

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/cluster/peerpb"
)

// guestMethods are what a caller may ask that has not shown that it knows this
// cluster and this server.
var guestMethods = map[string]bool{
	peerpb.Peer_Discover_FullMethodName: true,
	peerpb.Peer_Join_FullMethodName:     true,
}

func guard(ctx context.Context, method string) error {
	p, ok := peerFromContext(ctx)
	if !ok {
		return status.Error(codes.Unauthenticated, "not a peer connection")
	}
	if p.guest && !guestMethods[method] {
		return status.Error(codes.PermissionDenied, "a guest may only discover and join")
	}
	return nil
}

func guardUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := guard(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func guardStream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := guard(s.Context(), info.FullMethod); err != nil {
		return err
	}
	return next(srv, s)
}

// callerID is the server at the other end of a call that passed the guard.
func callerID(ctx context.Context) serverID {
	p, _ := peerFromContext(ctx)
	return p.server
}

// callerCluster is the id of the cluster that the other end belongs to, "" if it
// belongs to none.
func callerCluster(ctx context.Context) string {
	p, _ := peerFromContext(ctx)
	return p.cluster
}
