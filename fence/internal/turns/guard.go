package turns

import (
	"context"
	"errors"
	"fmt"

	"github.com/coordd/coord/fence"
)

// Guard stands in front of a service: it reads what a request says of its lock,
// and gives it its turn. Its fields are set before the first request.
type Guard struct {
	Store fence.Store
	Lock  string // the only lock whose tokens are taken; "": not asked for
	// Locks are those that have a mark each. Nil: one mark for each resource.
	Locks map[string]bool

	turns Turns
}

// Reasons to refuse a request before the store is asked.
var (
	ErrNoToken   = errors.New("the request carries no fencing token")
	ErrNoLock    = errors.New("the request does not say which lock its token is of")
	ErrOtherLock = errors.New("the token is of a lock that does not guard this resource")
)

// SetLocks makes each of the locks have a mark of its own.
func (g *Guard) SetLocks(locks []string) {
	g.Locks = make(map[string]bool, len(locks))
	for _, l := range locks {
		g.Locks[l] = true
	}
}

// Check returns an error if the fields contradict each other.
func (g *Guard) Check() error {
	if g.Locks == nil {
		return nil
	}
	if _, ok := g.Store.(fence.LockStore); !ok {
		return fmt.Errorf("PerLock needs a fence.LockStore, %T is none", g.Store)
	}
	if g.Lock != "" || len(g.Locks) == 0 {
		return errors.New("PerLock names the locks, and excludes OfLock")
	}
	return nil
}

// Enter is [Turns.Enter] for a request that carries these tokens (one, unless
// something is wrong) and this name of a lock. The context that it returns also
// carries the grant. It returns a [fence.TokenError] for a token that is none, and
// ErrNoToken, ErrNoLock or ErrOtherLock.
func (g *Guard) Enter(ctx context.Context, resource string, tokens []string, lock string) (context.Context, func(), error) {
	token, err := parse(tokens)
	if err != nil {
		return nil, nil, err
	}
	r := Request{Resource: resource, Token: token}
	store, err := g.storeFor(lock, &r)
	if err != nil {
		return nil, nil, err
	}
	inner, leave, err := g.turns.Enter(ctx, store, r)
	if err != nil {
		return nil, nil, err
	}
	return fence.NewContext(inner, fence.Grant{Lock: lock, Token: token}), leave, nil
}

func parse(tokens []string) (fence.Token, error) {
	switch len(tokens) {
	case 0:
		return 0, ErrNoToken
	case 1:
		return fence.Parse(tokens[0])
	default:
		return 0, &fence.TokenError{Text: tokens[1], Reason: "a second token in one request"}
	}
}

// storeFor picks the store that keeps the mark.
func (g *Guard) storeFor(lock string, r *Request) (fence.Store, error) {
	if g.Locks == nil {
		if g.Lock != "" && lock != "" && lock != g.Lock {
			return nil, fmt.Errorf("%w: %q", ErrOtherLock, lock)
		}
		return g.Store, nil
	}
	if lock == "" {
		return nil, ErrNoLock
	}
	if !g.Locks[lock] {
		return nil, fmt.Errorf("%w: %q", ErrOtherLock, lock)
	}
	r.Lock = lock
	return g.Store.(fence.LockStore).ForLock(lock), nil
}
