package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
)

const (
	// gRPC's knobs, measured for streams of lists: large buffers and windows that
	// do not adapt cost the least per request.
	ioBufferBytes    = 128 << 10
	tlsBufferBytes   = 32 << 10 // TLS connections keep theirs for good
	windowBytes      = 1 << 20
	maxStreams       = 10_000 // of one connection
	handshakeTime    = 10 * time.Second
	maxHeaderBytes   = 16 << 10
	keepaliveTime    = 20 * time.Second
	keepaliveTimeout = 10 * time.Second
	minPing          = time.Second
	idleConnection   = 5 * time.Minute // without any stream
	// A message may be this many times limits.frame_size before gRPC cuts the
	// stream: in between the client is told which limit it has met.
	maxFrames = 2
)

// newGRPC builds the gRPC server with all its services.
func (s *Server) newGRPC(tlsConfig *tls.Config) *grpc.Server {
	readBuffer := ioBufferBytes
	var secure []grpc.ServerOption
	if tlsConfig != nil {
		readBuffer = tlsBufferBytes
		secure = append(secure, grpc.Creds(credentials.NewTLS(tlsConfig)))
	}
	opts := append(secure,
		grpc.ReadBufferSize(readBuffer),
		grpc.WriteBufferSize(ioBufferBytes),
		grpc.InitialWindowSize(windowBytes),
		grpc.InitialConnWindowSize(windowBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxRecvMsgSize(maxFrames*s.limits.FrameBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(handshakeTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: idleConnection, Time: keepaliveTime, Timeout: keepaliveTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(s.guardUnary),
		grpc.ChainStreamInterceptor(s.guardStream),
	)
	g := grpc.NewServer(opts...)
	coordpb.RegisterCoordServer(g, coordService{s: s})
	coordpb.RegisterAdminServer(g, adminService{s: s})
	grpc_health_v1.RegisterHealthServer(g, s.health)
	if s.cfg.Reflection {
		reflection.Register(g)
	}
	return g
}

// guardUnary keeps a panic in one call from ending the server.
func (s *Server) guardUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (reply any, err error) {
	defer s.recovered(info.FullMethod, &err)
	return next(ctx, req)
}

// guardStream does the same for a stream's handler. The goroutines of a stream
// are guarded by guarded.
func (s *Server) guardStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer s.recovered(info.FullMethod, &err)
	return next(srv, stream)
}

func (s *Server) recovered(where string, err *error) {
	if p := recover(); p != nil {
		*err = statusOf(s.panicked(where, p))
	}
}

// panicked logs a panic and returns what the client is told.
func (s *Server) panicked(where string, p any) error {
	s.metrics.panics.Add(1)
	s.log.Error("panic", "event", "panic", "op", where, "err", fmt.Sprint(p), "stack", string(debug.Stack()))
	return fsm.ErrInternal
}

// guarded runs a part of a stream; a panic there ends that stream only.
func (s *Server) guarded(where string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(where, p)
		}
	}()
	return f()
}
