package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/znode"
)

const testLimit = 2 // of semaphores

// TestRandomSchedules lets contenders come, hold, give up, lose their sessions,
// lose their znodes and go at random times, in fake time, and looks after each of
// 10,000 such schedules at what locks are for: order, tokens, exclusion, that
// somebody gets the lock, and that nothing is left.
func TestRandomSchedules(t *testing.T) {
	s := seed.New(t)
	for kind, schedules := range map[Kind]int{KindMutex: 4000, KindRW: 3000, KindSemaphore: 3000} {
		if testing.Short() {
			schedules /= 20
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := fakecoord.New(t, 2)
				pool := &sessions{t: t, c: connect(t, c)}
				for i := range schedules {
					run := &schedule{
						t: t, c: c, pool: pool, kind: kind, path: fmt.Sprintf("/%s/%d", kind, i),
						r: rand.New(rand.NewPCG(s, uint64(i))), began: time.Now(), inside: map[*contender]bool{}, deleted: map[string]bool{},
					}
					run.run()
					if t.Failed() {
						t.Fatalf("COORD_SEED=%d, schedule %d:\n%s", s, i, strings.Join(run.story, "\n"))
					}
				}
			})
		})
	}
}

// sessions are kept from one schedule to the next while they live.
type sessions struct {
	t    *testing.T
	c    *client.Client
	idle []*client.Session
}

func (p *sessions) get() *client.Session {
	for len(p.idle) > 0 {
		s := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if s.Context().Err() == nil {
			return s
		}
	}
	s, err := p.c.NewSession(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

type schedule struct {
	t     *testing.T
	c     *fakecoord.Cluster
	pool  *sessions
	kind  Kind
	path  string
	r     *rand.Rand
	began time.Time

	mu        sync.Mutex
	inside    map[*contender]bool
	deleted   map[string]bool
	lingering []linger
	grants    []grant
	story     []string
}

type contender struct {
	id     int
	role   role
	s      *client.Session
	opts   []Option
	start  time.Duration
	hold   time.Duration
	delay  time.Duration // lock-delay
	fate   string
	when   time.Duration // of the fate
	handle *Handle
	dead   bool
}

// linger is a lock-delay that runs.
type linger struct {
	c     *contender
	until time.Time
}

type grant struct {
	c      *contender
	number uint64
	token  fence.Token
}

func (s *schedule) run() {
	var wg sync.WaitGroup
	cs := make([]*contender, 3+s.r.IntN(4))
	for i := range cs {
		cs[i] = s.draw(i)
	}
	for _, c := range cs {
		wg.Go(func() { s.live(c) })
	}
	wg.Wait()
	for _, c := range cs {
		if c.s.Context().Err() == nil {
			s.pool.idle = append(s.pool.idle, c.s)
		}
	}
	s.somebodyGetsIt()
	s.nothingIsLeft()
	s.tokensAreInOrder()
}

// draw makes a contender with a fate.
func (s *schedule) draw(i int) *contender {
	ms := func(n int) time.Duration { return time.Duration(s.r.IntN(n)) * time.Millisecond }
	c := &contender{id: i, role: roleLock, s: s.pool.get(), start: ms(12), hold: ms(8), when: ms(40), fate: "stays"}
	switch {
	case s.kind == KindSemaphore:
		c.role = roleSlot
	case s.kind == KindRW && s.r.IntN(5) < 3:
		c.role = roleRead
	case s.kind == KindRW:
		c.role = roleWrite
	}
	if f := s.r.IntN(20); f < 10 {
		c.fate = []string{"cancel", "cancel", "cancel", "expire", "expire", "expire", "delete", "delete", "close", "close"}[f]
	}
	c.opts = []Option{WithSession(c.s), Owner(strconv.Itoa(i))}
	if s.r.IntN(4) == 0 {
		c.delay = 5*time.Millisecond + ms(30)
		c.opts = append(c.opts, LockDelay(c.delay))
	}
	if s.r.IntN(4) == 0 {
		c.opts = append(c.opts, WaitLimit(time.Millisecond+ms(30)))
	}
	return c
}

// acquireAs is Acquire in a role.
func acquireAs(ctx context.Context, cl *client.Client, kind Kind, path string, r role, opts ...Option) (*Handle, error) {
	switch {
	case kind == KindMutex:
		return New(cl, path, opts...).Acquire(ctx)
	case kind == KindSemaphore:
		return NewSemaphore(cl, path, testLimit, opts...).Acquire(ctx)
	case r == roleRead:
		return NewRW(cl, path, opts...).AcquireRead(ctx)
	default:
		return NewRW(cl, path, opts...).AcquireWrite(ctx)
	}
}

// live is what a contender does.
func (s *schedule) live(c *contender) {
	time.Sleep(c.start)
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	fated := make(chan struct{})
	go func() {
		defer close(fated)
		time.Sleep(c.when)
		s.meet(c, cancel)
	}()
	h, err := acquireAs(ctx, s.pool.c, s.kind, s.path, c.role, c.opts...)
	if err == nil {
		s.enter(c, h)
		select {
		case <-time.After(c.hold):
		case <-h.Lost():
		}
		s.leave(c)
		err = h.Release(context.WithoutCancel(ctx))
	} else if c.fate == "stays" && !errors.Is(err, ErrWaitLimit) && !errors.Is(err, ErrDeleted) {
		s.t.Errorf("contender %d: %v", c.id, err)
	}
	s.tell("%d done: %v", c.id, err)
	<-fated
}

// meet lets a contender's fate happen.
func (s *schedule) meet(c *contender, cancel func()) {
	s.tell("%d %s", c.id, c.fate)
	switch c.fate {
	case "cancel":
		cancel()
	case "expire":
		s.mu.Lock()
		c.dead = true
		if s.inside[c] && c.delay > 0 && c.handle.Held() {
			s.lingering = append(s.lingering, linger{c, time.Now().Add(c.delay)})
		}
		s.c.Expire(uint64(c.s.ID()))
		s.mu.Unlock()
	case "close":
		s.mu.Lock()
		c.dead = true
		s.mu.Unlock()
		if err := c.s.Close(s.t.Context()); err != nil {
			s.t.Error(err)
		}
	case "delete": // anybody's
		s.mu.Lock()
		defer s.mu.Unlock()
		paths := slices.DeleteFunc(s.c.Paths(s.path+"/"), func(p string) bool { return path.Base(p) == "slots" })
		if len(paths) > 0 {
			p := paths[c.id%len(paths)]
			s.deleted[p] = true
			s.c.Delete(p)
		}
	}
}

func (s *schedule) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(format, args...)
}

func (s *schedule) note(format string, args ...any) {
	s.story = append(s.story, fmt.Sprintf("%8s ", time.Since(s.began))+fmt.Sprintf(format, args...))
}

// enter looks at who else is inside.
func (s *schedule) enter(c *contender, h *Handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	number, _ := znode.SequenceOf(path.Base(h.place.entry.Path))
	s.grants = append(s.grants, grant{c, number, h.FencingToken()})
	s.note("%d %s number %d token %s slot %d", c.id, c.role, number, h.FencingToken(), h.Slot())
	c.handle = h
	if c.dead || s.deleted[h.Node()] || !h.Held() {
		return // lost before it was looked at
	}
	inside := 1
	for o := range s.inside {
		if o.dead || s.deleted[o.handle.Node()] || !o.handle.Held() {
			continue
		}
		inside++
		if s.kind != KindSemaphore && (c.role != roleRead || o.role != roleRead) {
			s.t.Errorf("%d is inside with %d", c.id, o.id)
		}
		if s.kind == KindSemaphore && h.Slot() == o.handle.Slot() {
			s.t.Errorf("%d has the slot of %d", c.id, o.id)
		}
	}
	for _, l := range s.lingering {
		blocks := s.kind == KindMutex || s.kind == KindSemaphore && l.c.handle.Slot() == h.Slot() ||
			s.kind == KindRW && (c.role != roleRead || l.c.role != roleRead)
		if blocks && time.Now().Before(l.until) && !s.deleted[l.c.handle.Node()] {
			s.t.Errorf("%d is inside while that of %d lingers", c.id, l.c.id)
		}
	}
	if s.kind == KindSemaphore && inside > testLimit {
		s.t.Errorf("%d are inside", inside)
	}
	s.inside[c] = true
}

func (s *schedule) leave(c *contender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inside, c)
}

// somebodyGetsIt: one who comes afterwards, and is alone.
func (s *schedule) somebodyGetsIt() {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	for _, r := range []role{roleRead, roleWrite} {
		h, err := acquireAs(ctx, s.pool.c, s.kind, s.path, r)
		if err != nil {
			s.t.Errorf("nobody gets the lock any more: %v; left are %v", err, s.c.Paths(s.path))
			return
		}
		s.enter(&contender{id: -1, role: r}, h)
		clear(s.inside)
		if err := h.Release(ctx); err != nil {
			s.t.Error(err)
		}
	}
}

func (s *schedule) nothingIsLeft() {
	time.Sleep(100 * time.Millisecond) // a lingering reader or slot keeps nobody out
	for _, p := range s.c.Paths(s.path + "/") {
		if path.Base(p) != "slots" {
			s.t.Errorf("%s is left", p)
		}
		s.c.Delete(p)
	}
	s.c.Delete(s.path) // as the reaper would
	s.c.Forget()
}

// tokensAreInOrder: of two that cannot hold the lock together, who came first has
// the smaller token; of two that can, the tokens differ.
func (s *schedule) tokensAreInOrder() {
	slices.SortFunc(s.grants, func(a, b grant) int { return int(int64(a.number) - int64(b.number)) })
	for i, a := range s.grants {
		for _, b := range s.grants[i+1:] {
			shared := a.c.role == roleRead && b.c.role == roleRead
			if a.token >= b.token && !shared || a.token == b.token {
				s.t.Errorf("number %d has token %s, and number %d has %s", a.number, a.token, b.number, b.token)
			}
		}
	}
}
