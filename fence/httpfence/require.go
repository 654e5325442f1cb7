package httpfence

import (
	"context"
	"errors"
	"net/http"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/internal/turns"
)

// Names of the headers.
const (
	// Header carries the token, in decimal.
	Header = "Fencing-Token"
	// LockHeader carries the path of the lock that the token is of. It may be
	// missing.
	LockHeader = "Fencing-Lock"
)

// Option changes what Require asks for.
type Option func(*guard)

// OfLock says which lock guards the resources. A request that names another one
// is refused (400): its token cannot be compared.
func OfLock(lock string) Option { return func(g *guard) { g.Lock = lock } }

// PerLock keeps a mark for each lock that a request names, for resources that
// several locks guard. The store must be a [fence.LockStore], and a request
// without [LockHeader] is refused (428). Name the locks that are allowed; a
// request that names another one is refused (400), since any new name would begin
// with no mark at all.
func PerLock(locks ...string) Option { return func(g *guard) { g.SetLocks(locks) } }

// Require returns middleware that lets a request through only with a token that
// store admits for the resource. resource names what the request is about; "" lets
// it through unguarded (a read, say). All requests that can change one resource
// must go through the middleware that one call of Require has returned.
//
// It answers 428 if the token is missing, 400 if it is no token or of another
// lock, 412 if it is stale, 503 if the store fails; the body is a problem
// document. The request that the next handler sees is done, with a
// *fence.StaleError as its context's cause, when a newer token was admitted, and
// its context carries the grant ([fence.FromContext]).
//
// Require panics if options contradict each other or the store.
func Require(store fence.Store, resource func(*http.Request) string, opts ...Option) func(http.Handler) http.Handler {
	g := &guard{resource: resource}
	g.Store = store
	for _, opt := range opts {
		opt(g)
	}
	if err := g.Check(); err != nil {
		panic("httpfence: " + err.Error())
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
	}
}

type guard struct {
	turns.Guard
	resource func(*http.Request) string
}

func (g *guard) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	resource := g.resource(r)
	if resource == "" {
		next.ServeHTTP(w, r)
		return
	}
	ctx, leave, err := g.Enter(r.Context(), resource, r.Header.Values(Header), r.Header.Get(LockHeader))
	if err != nil {
		refuse(w, err)
		return
	}
	defer leave()
	next.ServeHTTP(w, r.WithContext(ctx))
}

// refuse answers with the status that fits the error.
func refuse(w http.ResponseWriter, err error) {
	var stale *fence.StaleError
	switch {
	case errors.As(err, &stale):
		writeProblem(w, problem{
			Type: typeStale, Title: "stale fencing token", Status: http.StatusPreconditionFailed, Detail: err.Error(),
			Resource: stale.Resource, Lock: stale.Lock, Got: stale.Got.String(), Seen: stale.Seen.String(),
		})
	case errors.Is(err, turns.ErrNoToken), errors.Is(err, turns.ErrNoLock):
		writeProblem(w, problem{Type: typeMissing, Title: "fencing token required", Status: http.StatusPreconditionRequired, Detail: err.Error()})
	case errors.Is(err, turns.ErrOtherLock), errors.Is(err, fence.ErrInvalidToken), errors.Is(err, fence.ErrInvalidResource):
		writeProblem(w, problem{Type: typeInvalid, Title: "unusable fencing token", Status: http.StatusBadRequest, Detail: err.Error()})
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		writeProblem(w, problem{Type: typeWaiting, Title: "a request of an older holder is still running", Status: http.StatusServiceUnavailable, Detail: err.Error()})
	default:
		// The store's own words may name files and hosts: they are not for callers.
		writeProblem(w, problem{Type: typeStore, Title: "the fencing marks cannot be read", Status: http.StatusServiceUnavailable})
	}
}
