package recipetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/coordd/coord/fence"
)

// Hold is what a party has got.
type Hold struct {
	// Lock tells apart what is held independently; "" if there is only one.
	Lock string
	// Token is that of the acquisition; 0: it has none.
	Token fence.Token
	// Context ends when the party learns that it holds nothing any more.
	Context context.Context
	// Shared holds exclude those that are not, and not each other.
	Shared bool
	// Limit is how many may hold at the same time; 0 is one. It is the same for
	// all of a lock, and has no meaning for shared ones.
	Limit int
}

// grace is how long a party that was struck by something that the cluster does
// not wait for may believe that it holds.
const grace = time.Second

// observer hears who holds what.
type observer struct {
	mu      sync.Mutex // guards below
	held    map[*holding]struct{}
	tokens  map[string]fence.Token // highest of each lock
	excused time.Time              // from when on the victim must know; zero: never excused
	buried  bool                   // the victim is dead
	faults  []string
}

type holding struct {
	Hold
	by string
}

func newObserver() *observer {
	return &observer{held: map[*holding]struct{}{}, tokens: map[string]fence.Token{}}
}

// Enter says that the party holds something now. leave says that it does not any
// more; it is to be called before it is released, or when the context has ended.
func (p *Party) Enter(h Hold) (leave func()) { return p.watch.enter(p.Name, h) }

// Fail is a fault of the recipe that the party has seen.
func (p *Party) Fail(format string, args ...any) {
	p.watch.mu.Lock()
	defer p.watch.mu.Unlock()
	p.watch.failLocked("%s: %s", p.Name, fmt.Sprintf(format, args...))
}

func (o *observer) failLocked(format string, args ...any) {
	o.faults = append(o.faults, fmt.Sprintf(format, args...))
}

const victim = "victim"

func (o *observer) enter(by string, h Hold) (leave func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	me := &holding{h, by}
	if by == victim && o.buried {
		return func() {} // nobody is there any more to do so
	}
	o.checkTokenLocked(me)
	o.checkOthersLocked(me)
	o.held[me] = struct{}{}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.held, me)
	}
}

// checkTokenLocked: tokens rise. Those that share enter in no certain order.
func (o *observer) checkTokenLocked(me *holding) {
	last := o.tokens[me.Lock]
	alone := !me.Shared && me.Limit <= 1
	late := me.Context.Err() != nil || o.mayBeWrongLocked(me) // it may have been granted before
	if me.Token != 0 && alone && me.Token <= last && !late {
		o.failLocked("%s entered %q with token %s, after token %s", me.by, me.Lock, me.Token, last)
	}
	o.tokens[me.Lock] = max(last, me.Token)
}

// checkOthersLocked: nobody holds who should not.
func (o *observer) checkOthersLocked(me *holding) {
	if me.Context.Err() != nil || o.mayBeWrongLocked(me) {
		return
	}
	others := 0
	for h := range o.held {
		if h.Lock != me.Lock || h.Context.Err() != nil || o.mayBeWrongLocked(h) {
			continue
		}
		if me.Shared && h.Shared {
			continue
		}
		if others++; me.Shared || h.Shared || others >= max(me.Limit, 1) {
			o.failLocked("%s entered %q while %s held it (tokens %s, %s)", me.by, me.Lock, h.by, me.Token, h.Token)
		}
	}
}

// mayBeWrongLocked says that the victim may believe that it holds although it
// does not: it was paused, or its session was ended by force, and it had no time
// to learn of it.
func (o *observer) mayBeWrongLocked(h *holding) bool {
	return h.by == victim && (o.buried || !o.excused.IsZero() && time.Now().Before(o.excused))
}

// excuse lets the victim be wrong for some time, and a grace.
func (o *observer) excuse(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.excused = time.Now().Add(d + grace)
}

// bury notes that the victim is dead: it holds nothing.
func (o *observer) bury() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buried = true
	for h := range o.held {
		if h.by == victim {
			delete(o.held, h)
		}
	}
}

// found are the faults that were seen.
func (o *observer) found() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.faults
}
