package fakecoord

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var errCut = status.Error(codes.Unavailable, "connection reset")
