package main

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/zxid"
)

// restarting is a server that answers each restore as the next of answers says.
type restarting struct {
	coordpb.UnimplementedAdminServer
	mu      sync.Mutex
	answers []coordpb.Code
	ids     []string
}

func (r *restarting) Status(context.Context, *coordpb.StatusRequest) (*coordpb.StatusReply, error) {
	return &coordpb.StatusReply{ClusterName: "local", ClusterId: "c"}, nil
}

func (r *restarting) Restore(stream grpc.ClientStreamingServer[coordpb.RestoreRequest, coordpb.RestoreReply]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	for !errors.Is(err, io.EOF) {
		if _, err = stream.Recv(); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, first.GetBegin().GetId())
	code := r.answers[min(len(r.ids), len(r.answers))-1]
	if code == coordpb.Code_CODE_OK {
		return stream.SendAndClose(&coordpb.RestoreReply{Zxid: uint64(zxid.Make(9, 1)), Znodes: 8})
	}
	return stream.SendAndClose(&coordpb.RestoreReply{Error: &coordpb.Error{Code: code, Message: "said " + code.String()}})
}

// A server that is stopped in order says so, and a restore goes on elsewhere as if
// it had been killed. What is refused is not tried again.
func TestRestoreIsCarriedOnWhenItsServerStops(t *testing.T) {
	file := newBackupRig(t).file
	for name, c := range map[string]struct {
		answers []coordpb.Code
		code    int
		asked   int
		fate    string // of the tree
	}{
		"stops":      {[]coordpb.Code{coordpb.Code_CODE_SHUTTING_DOWN, coordpb.Code_CODE_UNKNOWN_OUTCOME, coordpb.Code_CODE_OK}, exitOK, 3, ""},
		"refuses":    {[]coordpb.Code{coordpb.Code_CODE_NOT_EMPTY}, exitPrecondition, 1, "nothing was replaced"},
		"has no one": {[]coordpb.Code{coordpb.Code_CODE_UNAVAILABLE}, exitUnreachable, 1, "nothing was replaced"},
		"has no one after the commit": {
			[]coordpb.Code{coordpb.Code_CODE_UNKNOWN_OUTCOME, coordpb.Code_CODE_UNAVAILABLE}, exitUnreachable, 2, "it is not known whether the backup",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &restarting{answers: c.answers}
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := grpc.NewServer()
			coordpb.RegisterAdminServer(s, r)
			go func() { _ = s.Serve(l) }() // ends with the stop
			defer s.Stop()
			res := ctl(t, "", "-e", l.Addr().String(), "backup", "restore", file, "--yes")
			r.mu.Lock()
			defer r.mu.Unlock()
			if res.code != c.code || len(r.ids) != c.asked || len(slices.Compact(slices.Clone(r.ids))) != 1 {
				t.Errorf("exit code %d, asked with %q, %s", res.code, r.ids, res.stderr)
			}
			if !strings.Contains(res.stderr, c.fate) {
				t.Errorf("%q is not said: %s", c.fate, res.stderr)
			}
			if c.answers[0] == coordpb.Code_CODE_SHUTTING_DOWN && !strings.Contains(res.stderr, "said CODE_SHUTTING_DOWN") {
				t.Errorf("it does not say why: %s", res.stderr)
			}
		})
	}
}
