package client

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
)

// Admin makes calls of the admin service, to one server in particular or to any
// that answers. It is safe for concurrent use.
type Admin struct {
	core *core
	own  bool // made by NewAdmin
}

// adminKeepalive ends a backup or a restore whose server has fallen silent: there
// are no heartbeats of a session, and it may take long for good reason.
var adminKeepalive = keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}

// NewAdmin makes an Admin without a session. Nothing is sent until the first
// call, so it also serves to look at a cluster of which nothing answers. Of the
// options those about connections have a meaning.
func NewAdmin(target string, opts ...Option) (*Admin, error) {
	c, err := prepare(target, append(slices.Clone(opts), WithoutSession(), WithGRPCOptions(grpc.WithKeepaliveParams(adminKeepalive))))
	if err != nil {
		return nil, badArguments(opDial, err)
	}
	return &Admin{core: c, own: true}, nil
}

// Admin makes admin calls over the client's endpoints and credentials.
func (c *Client) Admin() *Admin { return &Admin{core: c.core} }

// Close frees the connections of an Admin made by NewAdmin. It may be called
// twice.
func (a *Admin) Close() error {
	if !a.own {
		return nil
	}
	return a.core.close()
}

// Endpoints are the addresses of the target, in its order.
func (a *Admin) Endpoints() []string { return slices.Clone(a.core.endpoints) }

// At calls one server. Its errors are *Error; an endpoint that cannot be
// reached is ErrUnavailable with one Attempt.
func (a *Admin) At(endpoint string) coordpb.AdminClient {
	return coordpb.NewAdminClient(&invoker{a.core, []string{endpoint}})
}

// Any calls the first server that answers, in the order of the target.
func (a *Admin) Any() coordpb.AdminClient {
	return coordpb.NewAdminClient(&invoker{a.core, a.core.endpoints})
}

// invoker carries calls to the first of its endpoints that can be reached.
type invoker struct {
	core      *core
	endpoints []string
}

// authMetadata carries "scheme credential" for calls whose messages have no
// place for it.
const authMetadata = "coord-auth-bin"

// Invoke implements grpc.ClientConnInterface. A call is made at the next
// endpoint only if this one was not reached or serves nobody at the moment.
func (i *invoker) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	ctx, t := i.begin(ctx)
	for range i.endpoints {
		sent, err := t.call(ctx, func(ctx context.Context, l *link) (*coordpb.Error, error) {
			return nil, l.cc.Invoke(ctx, method, in, out, opts...)
		})
		if err == nil {
			return nil
		}
		if sent && status.Code(err) != codes.Unavailable || ctx.Err() != nil {
			break
		}
		t.n++
	}
	e := t.failure(ctx, "admin", "")
	return e
}

// begin adds the credentials, and goes from endpoint to endpoint: those of the
// invoker stand in for the client's, the rest is its.
func (i *invoker) begin(ctx context.Context) (context.Context, *tries) {
	for _, a := range i.core.opts.auth {
		ctx = metadata.AppendToOutgoingContext(ctx, authMetadata, a.scheme+" "+string(a.secret))
	}
	return ctx, &tries{core: &core{opts: i.core.opts, endpoints: i.endpoints, links: i.core.links}, seen: map[string]Attempt{}}
}

// NewStream implements grpc.ClientConnInterface. The stream is opened at the
// first endpoint that can be reached, and stays there: what breaks it is the
// caller's to repeat.
func (i *invoker) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (s grpc.ClientStream, err error) {
	ctx, t := i.begin(ctx)
	for range i.endpoints {
		_, err := t.call(ctx, func(ctx context.Context, l *link) (_ *coordpb.Error, err error) {
			s, err = l.cc.NewStream(ctx, d, method, opts...)
			return nil, err
		})
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			break
		}
		t.n++
	}
	return nil, t.failure(ctx, "admin", "")
}
