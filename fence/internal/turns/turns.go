// Package turns keeps the requests of a former lock holder from overlapping with
// those of a newer one, inside one process. Admitting a token says nothing about
// what happens afterwards: a request that was admitted a moment before the newer
// token came may write a moment after it. So a newer token's request cancels the
// running ones of older tokens and waits until they have ended.
package turns

import (
	"context"
	"fmt"
	"sync"

	"github.com/coordd/coord/fence"
)

// Turns orders the requests of any number of resources. The zero value is ready
// and may be used from any goroutine.
type Turns struct {
	mu        sync.Mutex // guards below
	resources map[key]*resource
}

type key struct{ resource, lock string }

// resource exists while somebody has entered it or tries to: whoever has asked
// the store before us must not be forgotten before we look.
type resource struct {
	users   int
	newest  fence.Token // of those that were admitted since it exists
	running map[*running]struct{}
}

type running struct {
	token  fence.Token
	cancel context.CancelCauseFunc
	ended  chan struct{}
}

// Request is one request for a resource.
type Request struct {
	Resource string
	Lock     string // whose token it is; empty where a resource has one mark
	Token    fence.Token
}

// Enter admits the request's token at store and returns once no request with an
// older one is running. The context that it returns is a child of ctx and is
// done, with a *fence.StaleError as its cause, when a newer token has been
// admitted: the request should stop then, the newer one waits for it. leave must
// be called when the request has ended.
//
// Errors are the store's, ctx's, and a *fence.StaleError where a newer token has
// overtaken this one since the store was asked.
func (t *Turns) Enter(ctx context.Context, store fence.Store, r Request) (inner context.Context, leave func(), err error) {
	k := key{r.Resource, r.Lock}
	res := t.use(k)
	defer func() {
		if err != nil {
			t.release(k, res, nil)
		}
	}()
	if err := store.Admit(ctx, r.Resource, r.Token); err != nil {
		return nil, nil, err
	}
	older, err := t.supersede(res, r)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range older {
		select {
		case <-o.ended:
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("waiting for a request of an older holder of %q to end: %w", r.Resource, context.Cause(ctx))
		}
	}
	me := &running{token: r.Token, ended: make(chan struct{})}
	inner, me.cancel = context.WithCancelCause(ctx)
	if err := t.start(res, me, r); err != nil {
		me.cancel(err)
		return nil, nil, err
	}
	return inner, sync.OnceFunc(func() {
		me.cancel(context.Canceled)
		t.release(k, res, me)
	}), nil
}

func (t *Turns) use(k key) *resource {
	t.mu.Lock()
	defer t.mu.Unlock()
	res := t.resources[k]
	if res == nil {
		res = &resource{running: make(map[*running]struct{})}
		if t.resources == nil {
			t.resources = make(map[key]*resource)
		}
		t.resources[k] = res
	}
	res.users++
	return res
}

// supersede cancels the running requests of older tokens and returns them.
func (t *Turns) supersede(res *resource, r Request) ([]*running, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Token < res.newest {
		return nil, r.stale(res.newest)
	}
	res.newest = r.Token
	var older []*running
	for o := range res.running {
		if o.token < r.Token {
			o.cancel(&fence.StaleError{Resource: r.Resource, Lock: r.Lock, Got: o.token, Seen: r.Token})
			older = append(older, o)
		}
	}
	return older, nil
}

// start makes the request a running one, unless a newer token came while it
// waited. None of an older token can have started meanwhile.
func (t *Turns) start(res *resource, me *running, r Request) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if me.token < res.newest {
		return r.stale(res.newest)
	}
	res.running[me] = struct{}{}
	return nil
}

// release ends one use of the resource, and the request if it was running.
func (t *Turns) release(k key, res *resource, me *running) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if me != nil {
		delete(res.running, me)
		close(me.ended)
	}
	if res.users--; res.users == 0 {
		delete(t.resources, k)
	}
}

func (r Request) stale(seen fence.Token) error {
	return &fence.StaleError{Resource: r.Resource, Lock: r.Lock, Got: r.Token, Seen: seen}
}
