package fence

import "context"

// Grant is one acquisition of one lock, as the code that writes sees it.
type Grant struct {
	Lock  string // the lock's path
	Token Token
}

// grantsKey finds the newest grant; each points to the one before it.
type grantsKey struct{}

type grants struct {
	Grant
	outer *grants
}

// NewContext returns a child of ctx that carries g, for code further down that
// talks to a fenced resource (packages httpfence and grpcfence send it along).
// The contexts of the handles of package lock carry theirs already. A grant says
// which lock was acquired, not that it is still held: for that the context
// itself is done when the lock is lost.
func NewContext(ctx context.Context, g Grant) context.Context {
	outer, _ := ctx.Value(grantsKey{}).(*grants)
	return context.WithValue(ctx, grantsKey{}, &grants{g, outer})
}

// FromContext returns the grant that was put into ctx last: of locks that are
// taken one inside the other, the innermost. It returns false if there is none.
func FromContext(ctx context.Context) (Grant, bool) {
	g, ok := ctx.Value(grantsKey{}).(*grants)
	if !ok {
		return Grant{}, false
	}
	return g.Grant, true
}

// FromContextFor returns the newest grant of the named lock in ctx. Use it where
// several locks are held and the resource belongs to a certain one.
func FromContextFor(ctx context.Context, lock string) (Grant, bool) {
	g, _ := ctx.Value(grantsKey{}).(*grants)
	for ; g != nil; g = g.outer {
		if g.Lock == lock {
			return g.Grant, true
		}
	}
	return Grant{}, false
}
