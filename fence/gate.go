package fence

import (
	"context"
	"sync"
)

// Gate is a Store in memory, for a resource that lives in one process. Its
// marks are gone when the process ends: a resource that outlives the process
// needs marks that do too.
//
// The zero Gate is ready, admits equal tokens again, and may be used from any
// goroutine. It keeps one mark for each resource for ever, because forgetting
// one would let an old holder in; do not use it with names that outsiders make
// up.
type Gate struct {
	strict bool

	// mu guards marks.
	mu    sync.Mutex
	marks map[markKey]Token
}

type markKey struct{ resource, lock string }

// GateOption changes what a Gate admits.
type GateOption func(*Gate)

// Strict makes a Gate refuse a token that it has admitted before, so that each
// token is good for one admission of each resource.
func Strict() GateOption { return func(g *Gate) { g.strict = true } }

// NewGate returns an empty Gate.
func NewGate(opts ...GateOption) *Gate {
	g := new(Gate)
	for _, opt := range opts {
		opt(g)
	}
	return g
}

// Admit implements [Store]. Besides the errors named there it returns ctx's
// error if ctx has ended, and then the mark is as before.
func (g *Gate) Admit(ctx context.Context, resource string, t Token) error {
	return g.admit(ctx, markKey{resource: resource}, t)
}

// ForLock returns a Store over the same memory whose marks belong to one lock:
// a resource that two locks guard has a mark for each, since the tokens of two
// locks must not be compared.
func (g *Gate) ForLock(lock string) Store { return lockGate{gate: g, lock: lock} }

type lockGate struct {
	gate *Gate
	lock string
}

func (l lockGate) Admit(ctx context.Context, resource string, t Token) error {
	return l.gate.admit(ctx, markKey{resource: resource, lock: l.lock}, t)
}

func (g *Gate) admit(ctx context.Context, key markKey, t Token) error {
	if err := validate(key, t); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// Asked under the lock: a caller that waited here while its lock was lost
	// must not come in on the strength of an older look.
	if err := ctx.Err(); err != nil {
		return err
	}
	seen := g.marks[key]
	if t < seen || g.strict && t == seen {
		return &StaleError{Resource: key.resource, Lock: key.lock, Got: t, Seen: seen}
	}
	if g.marks == nil {
		g.marks = make(map[markKey]Token)
	}
	g.marks[key] = t
	return nil
}

func validate(key markKey, t Token) error {
	if err := t.Validate(); err != nil {
		return err
	}
	if err := ValidateResource(key.resource); err != nil {
		return err
	}
	return ValidateLock(key.lock)
}
