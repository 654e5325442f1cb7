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
	excused time.Time              // from when on the victim must know; zero: it always must
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

// checkTokenLocked: tokens rise. Those that share enter in no certain order, and
// one that has lost what it got before it could enter is late.
func (o *observer) checkTokenLocked(me *holding) {
	last := o.tokens[me.Lock]
	o.tokens[me.Lock] = max(last, me.Token)
	alone := !me.Shared && me.Limit <= 1
	switch {
	case me.Token == 0 || !alone || me.Token > last || me.Context.Err() != nil:
	case o.mayBeWrongLocked(me):
		o.checkLaterLocked(me)
	default:
		o.failLocked("%s entered %q with token %s, after token %s", me.by, me.Lock, me.Token, last)
	}
}

// checkOthersLocked: nobody holds who should not.
func (o *observer) checkOthersLocked(me *holding) {
	others := 0
	for h := range o.held {
		if h.Lock != me.Lock || h.Context.Err() != nil || me.Context.Err() != nil || me.Shared && h.Shared {
			continue
		}
		if o.mayBeWrongLocked(h) || o.mayBeWrongLocked(me) {
			o.checkLaterLocked(h, me)
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
	return h.by == victim && time.Now().Before(o.excused)
}

// checkLaterLocked makes sure that the victim learns of it in time.
func (o *observer) checkLaterLocked(pair ...*holding) {
	for _, h := range pair {
		if h.by != victim || h.Limit > 1 { // with a limit there may have been room for both
			continue
		}
		time.AfterFunc(time.Until(o.excused), func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			if _, held := o.held[h]; held && h.Context.Err() == nil {
				o.failLocked("victim held it for %s longer than it could be wrong about that (%q, token %s)", grace, h.Lock, h.Token)
			}
		})
	}
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
