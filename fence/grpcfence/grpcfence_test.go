package grpcfence_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/grpcfence"
)

// service stands for any service: the name in a request is the resource.
type service struct {
	healthpb.UnimplementedHealthServer
	check func(ctx context.Context) error // nil: nothing
}

func (s service) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if s.check != nil {
		return new(healthpb.HealthCheckResponse), s.check(ctx)
	}
	return new(healthpb.HealthCheckResponse), nil
}

func (s service) Watch(_ *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	if s.check != nil {
		return s.check(stream.Context())
	}
	return stream.Send(new(healthpb.HealthCheckResponse))
}

func byName(_ context.Context, _ string, req any) string {
	if r, ok := req.(*healthpb.HealthCheckRequest); ok {
		return r.GetService()
	}
	return "stream"
}

// connect starts a guarded service and a client for it.
func connect(g *grpcfence.Guard, s service, opts ...grpc.DialOption) (_ healthpb.HealthClient, stop func(), err error) {
	l := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(grpc.UnaryInterceptor(g.Unary), grpc.StreamInterceptor(g.Stream))
	healthpb.RegisterHealthServer(srv, s)
	go func() { _ = srv.Serve(l) }() // until Stop
	conn, err := grpc.NewClient("passthrough:test", append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
	}, opts...)...)
	if err != nil {
		srv.Stop()
		return nil, nil, err
	}
	return healthpb.NewHealthClient(conn), func() {
		_ = conn.Close()
		srv.Stop()
	}, nil
}

func dial(t testing.TB, g *grpcfence.Guard, s service, opts ...grpc.DialOption) healthpb.HealthClient {
	t.Helper()
	c, stop, err := connect(g, s, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return c
}

// underLock are the options of a client that sends its grants.
func underLock(c grpcfence.Client) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithUnaryInterceptor(c.Unary), grpc.WithStreamInterceptor(c.Stream)}
}

func holding(ctx context.Context, token fence.Token) context.Context {
	return fence.NewContext(ctx, fence.Grant{Lock: "/locks/ä", Token: token})
}

func call(ctx context.Context, c healthpb.HealthClient, resource string) error {
	_, err := c.Check(ctx, &healthpb.HealthCheckRequest{Service: resource})
	return err
}

func watch(ctx context.Context, c healthpb.HealthClient) error {
	s, err := c.Watch(ctx, new(healthpb.HealthCheckRequest))
	if err != nil {
		return err
	}
	_, err = s.Recv()
	return err
}

func TestStaleTokenIsRefusedWithBothNumbers(t *testing.T) {
	c := dial(t, grpcfence.NewGuard(fence.NewGate(), byName), service{}, underLock(grpcfence.Client{})...)
	for name, do := range map[string]func(fence.Token) error{
		"r":      func(token fence.Token) error { return call(holding(t.Context(), token), c, "r") },
		"stream": func(token fence.Token) error { return watch(holding(t.Context(), token), c) },
	} {
		for _, token := range []fence.Token{33, 33, 34} {
			if err := do(token); err != nil {
				t.Fatalf("%s, token %s: %v", name, token, err)
			}
		}
		err := do(33)
		var stale *fence.StaleError
		if !errors.As(err, &stale) || *stale != (fence.StaleError{Resource: name, Got: 33, Seen: 34}) || !errors.Is(err, fence.ErrStale) {
			t.Errorf("%s: %v", name, err)
		}
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s: code %s", name, status.Code(err))
		}
	}
	if err := call(holding(t.Context(), 1), c, "other"); err != nil {
		t.Errorf("another resource: %v", err)
	}
}

func TestCallsThatCannotBeJudgedAreRefused(t *testing.T) {
	one := dial(t, grpcfence.NewGuard(fence.NewGate(), byName, grpcfence.OfLock("/locks/a")), service{})
	perLock := dial(t, grpcfence.NewGuard(fence.NewGate(), byName, grpcfence.PerLock("/locks/a")), service{})
	broken := dial(t, grpcfence.NewGuard(failing{}, byName), service{})
	for _, c := range []struct {
		name     string
		client   healthpb.HealthClient
		resource string
		metadata []string
		code     codes.Code
	}{
		{"no token", one, "r", nil, codes.FailedPrecondition},
		{"no number", one, "r", []string{grpcfence.TokenKey, "x"}, codes.InvalidArgument},
		{"two tokens", one, "r", []string{grpcfence.TokenKey, "1", grpcfence.TokenKey, "2"}, codes.InvalidArgument},
		{"another lock", one, "r", []string{grpcfence.TokenKey, "1", grpcfence.LockKey, "/locks/b"}, codes.InvalidArgument},
		{"its lock", one, "r", []string{grpcfence.TokenKey, "1", grpcfence.LockKey, "/locks/a"}, codes.OK},
		{"unguarded", one, "", nil, codes.OK},
		{"per lock, no lock", perLock, "r", []string{grpcfence.TokenKey, "1"}, codes.FailedPrecondition},
		{"per lock", perLock, "r", []string{grpcfence.TokenKey, "1", grpcfence.LockKey, "/locks/a"}, codes.OK},
		{"store fails", broken, "r", []string{grpcfence.TokenKey, "1"}, codes.Unavailable},
	} {
		err := call(metadata.AppendToOutgoingContext(t.Context(), c.metadata...), c.client, c.resource)
		if status.Code(err) != c.code {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil && (errors.Is(err, fence.ErrStale) || status.Convert(err).Message() == "secret") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

type failing struct{}

func (failing) Admit(context.Context, string, fence.Token) error { return errors.New("secret") }

// A call of an older holder that is still running is told to stop, and the newer
// holder's begins only when it has ended.
func TestNewerHolderWaitsForTheOldersCall(t *testing.T) {
	for name, do := range map[string]func(context.Context, healthpb.HealthClient) error{
		"unary":  func(ctx context.Context, c healthpb.HealthClient) error { return call(ctx, c, "r") },
		"stream": watch,
	} {
		t.Run(name, func(t *testing.T) {
			begun, end := make(chan fence.Token, 2), make(chan struct{})
			c := dial(t, grpcfence.NewGuard(fence.NewGate(), byName), service{check: func(ctx context.Context) error {
				g, _ := fence.FromContext(ctx)
				begun <- g.Token
				if g.Token == 34 {
					return nil
				}
				<-ctx.Done()
				<-end
				return context.Cause(ctx)
			}}, underLock(grpcfence.Client{})...)
			older, newer := make(chan error, 1), make(chan error, 1)
			go func() { older <- do(holding(context.Background(), 33), c) }()
			if got := <-begun; got != 33 {
				t.Fatal(got)
			}
			go func() { newer <- do(holding(context.Background(), 34), c) }()
			select {
			case got := <-begun:
				t.Errorf("%s has begun while the older call was running", got)
			case <-time.After(50 * time.Millisecond):
			}
			close(end)
			if err := <-older; err == nil {
				t.Error("the older call was not told")
			}
			<-newer
			if got := <-begun; got != 34 {
				t.Error(got)
			}
		})
	}
}

func TestClientDoesNotSendWithoutAGrant(t *testing.T) {
	asked := 0
	g := grpcfence.NewGuard(fence.NewGate(), func(context.Context, string, any) string { asked++; return "" })
	c := dial(t, g, service{}, underLock(grpcfence.Client{Lock: "/locks/a"})...)
	lost := &fence.StaleError{Resource: "r", Got: 33, Seen: 34}
	over, cancel := context.WithCancelCause(fence.NewContext(t.Context(), fence.Grant{Lock: "/locks/a", Token: 33}))
	cancel(lost)
	for _, c2 := range []struct {
		name string
		ctx  context.Context
		want error
	}{
		{"no lock", t.Context(), grpcfence.ErrNoGrant},
		{"another lock", holding(t.Context(), 33), grpcfence.ErrNoGrant},
		{"no token", fence.NewContext(t.Context(), fence.Grant{Lock: "/locks/a"}), fence.ErrInvalidToken},
		{"lost", over, fence.ErrStale},
	} {
		if err := call(c2.ctx, c, "r"); !errors.Is(err, c2.want) {
			t.Errorf("%s: %v", c2.name, err)
		}
		if err := watch(c2.ctx, c); !errors.Is(err, c2.want) {
			t.Errorf("%s, stream: %v", c2.name, err)
		}
	}
	if asked != 0 {
		t.Errorf("%d calls were sent", asked)
	}
	plain := dial(t, g, service{}, underLock(grpcfence.Client{Methods: func(string) bool { return false }})...)
	if err := errors.Join(call(t.Context(), plain, "r"), watch(t.Context(), plain)); err != nil {
		t.Errorf("calls that are not made under the lock: %v", err)
	}
}

func TestLateCallIsRefusedAHundredTimes(t *testing.T) {
	c := dial(t, grpcfence.NewGuard(fence.NewGate(), byName), service{}, underLock(grpcfence.Client{})...)
	for i := range fence.Token(100) {
		if err := errors.Join(call(holding(t.Context(), 2*i+1), c, "r"), call(holding(t.Context(), 2*i+2), c, "r")); err != nil {
			t.Fatal(err)
		}
		if err := call(holding(t.Context(), 2*i+1), c, "r"); !errors.Is(err, fence.ErrStale) {
			t.Fatalf("round %d: %v", i, err)
		}
	}
}

func TestContradictoryOptionsPanic(t *testing.T) {
	for name, f := range map[string]func(){
		"no lock store":   func() { grpcfence.NewGuard(failing{}, byName, grpcfence.PerLock("/l")) },
		"no locks":        func() { grpcfence.NewGuard(fence.NewGate(), byName, grpcfence.PerLock()) },
		"one and several": func() { grpcfence.NewGuard(fence.NewGate(), byName, grpcfence.PerLock("/l"), grpcfence.OfLock("/l")) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// A service that refuses former holders, and a client that sends the token of the
// lock in its context. The context is usually that of a lock's handle.
func Example() {
	guard := grpcfence.NewGuard(fence.NewGate(), func(_ context.Context, _ string, req any) string {
		return req.(*healthpb.HealthCheckRequest).GetService()
	})
	client, stop, err := connect(guard, service{}, grpc.WithUnaryInterceptor(grpcfence.Client{}.Unary))
	if err != nil {
		panic(err)
	}
	defer stop()

	former := fence.NewContext(context.Background(), fence.Grant{Lock: "/locks/report", Token: 33})
	holder := fence.NewContext(context.Background(), fence.Grant{Lock: "/locks/report", Token: 34})
	fmt.Println(call(holder, client, "report"))
	err = call(former, client, "report")
	fmt.Println(errors.Is(err, fence.ErrStale), err)
	// Output:
	// <nil>
	// true fence: stale token for "report": 33 < 34, a newer holder has been here
}
