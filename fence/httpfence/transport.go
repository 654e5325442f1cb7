package httpfence

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/coordd/coord/fence"
)

// ErrNoGrant is returned by a Transport for a request whose context carries no
// grant: it was not made under a lock and must not be sent as if it were.
var ErrNoGrant = errors.New("httpfence: the request's context carries no grant of a lock")

// Transport is an http.RoundTripper that adds the fencing token of the lock in
// the request's context. The zero value is ready and uses the default transport;
// it may be used from any goroutine.
type Transport struct {
	// Base sends the requests; nil is http.DefaultTransport.
	Base http.RoundTripper
	// Lock is the lock whose grant is sent; "" is the innermost of those that
	// the context carries.
	Lock string
}

// RoundTrip implements http.RoundTripper. Besides the errors of Base it returns
// [ErrNoGrant], and the cause of a context that has ended: when it is that of a
// lock's handle, the request that the lock was for is not sent any more.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	g, err := t.grant(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // the contract of a RoundTripper
		}
		return nil, err
	}
	r = r.Clone(r.Context()) // the caller's request must not be changed
	r.Header.Set(Header, g.Token.String())
	if g.Lock != "" {
		r.Header.Set(LockHeader, g.Lock)
	}
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	return base.RoundTrip(r)
}

func (t *Transport) grant(ctx context.Context) (fence.Grant, error) {
	if ctx.Err() != nil {
		return fence.Grant{}, context.Cause(ctx)
	}
	g, ok := fence.FromContext(ctx)
	if t.Lock != "" {
		g, ok = fence.FromContextFor(ctx, t.Lock)
	}
	if !ok {
		return fence.Grant{}, ErrNoGrant
	}
	return g, g.Token.Validate()
}

// unread is a body of which a part was read already.
func unread(read []byte, rest io.ReadCloser) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(read), rest), rest}
}
