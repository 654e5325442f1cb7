package test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/election"
	"github.com/coordd/coord/recipes/lock"
)

// tokenRecipe is one kind of lock under test.
type tokenRecipe struct {
	name       string
	grants     int // in all
	contenders int
	writes     int // one in so many grants writes into the log
	roots      []string
	acquire    func(ctx context.Context, s *client.Session, r *rand.Rand) (*turn, error)
}

// turn is what one acquisition gave.
type turn struct {
	holds   []holding
	release func(ctx context.Context) error
}

func single(h *lock.Handle, mark string, alone bool) *turn {
	return &turn{[]holding{holdingOf(h, mark, alone)}, h.Release}
}

func holdingOf(h *lock.Handle, mark string, alone bool) holding {
	return holding{mark: mark, token: h.FencingToken(), alone: alone, held: h.Held, guard: []client.Op{h.Guard()}}
}

const semaphoreSlots = 3

// quiet is for clients that lose their sessions on purpose.
var quiet = client.WithLogger(slog.New(slog.DiscardHandler))

// tokenRecipes are all recipes that give tokens.
func tokenRecipes() []tokenRecipe {
	return []tokenRecipe{
		{"mutex", 10_000, 5, 8, []string{"/locks/mutex"}, acquireMutex},
		{"rw", 800, 4, 1, []string{"/locks/rw"}, acquireRW},
		{"semaphore", 1000, 6, 1, []string{"/locks/semaphore", "/locks/semaphore/slots"}, acquireSemaphore},
		{"multi", 600, 4, 1, []string{"/locks/multi/a", "/locks/multi/b", "/locks/multi/c"}, acquireMulti},
		{"election", 600, 3, 1, []string{"/locks/election"}, campaign},
	}
}

func acquireMutex(ctx context.Context, s *client.Session, _ *rand.Rand) (*turn, error) {
	h, err := lock.New(s.Client(), "/locks/mutex").Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return single(h, "mutex", true), nil
}

func acquireRW(ctx context.Context, s *client.Session, r *rand.Rand) (*turn, error) {
	m := lock.NewRW(s.Client(), "/locks/rw")
	writer := r.IntN(3) == 0
	acquire := m.AcquireRead
	if writer {
		acquire = m.AcquireWrite
	}
	h, err := acquire(ctx)
	if err != nil {
		return nil, err
	}
	return single(h, "rw", writer), nil
}

// acquireSemaphore has a mark for each slot, and one for the whole.
func acquireSemaphore(ctx context.Context, s *client.Session, _ *rand.Rand) (*turn, error) {
	h, err := lock.NewSemaphore(s.Client(), "/locks/semaphore", semaphoreSlots).Acquire(ctx)
	if err != nil {
		return nil, err
	}
	t := single(h, fmt.Sprintf("slot-%d", h.Slot()), true)
	t.holds = append(t.holds, holdingOf(h, "semaphore", false))
	return t, nil
}

// acquireMulti takes two of three locks, or one of them as a mutex.
func acquireMulti(ctx context.Context, s *client.Session, r *rand.Rand) (*turn, error) {
	names := []string{"a", "b", "c"}
	r.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	path := func(name string) string { return "/locks/multi/" + name }
	if r.IntN(4) == 0 {
		h, err := lock.New(s.Client(), path(names[0])).Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return single(h, "multi-"+names[0], true), nil
	}
	h, err := lock.NewMulti(s.Client(), []string{path(names[0]), path(names[1])}).Acquire(ctx)
	if err != nil {
		return nil, err
	}
	t := &turn{release: h.Release}
	for _, name := range names[:2] {
		t.holds = append(t.holds, holdingOf(h.Handle(path(name)), "multi-"+name, true))
	}
	return t, nil
}

func campaign(ctx context.Context, s *client.Session, r *rand.Rand) (*turn, error) {
	l, err := election.New(s.Client(), "/locks/election").Campaign(ctx, fmt.Append(nil, r.IntN(100)))
	if err != nil {
		return nil, err
	}
	t := single(l.Handle, "election", true)
	t.release = l.Resign
	return t, nil
}

// tokenRun is one recipe with its contenders.
type tokenRun struct {
	t      testing.TB
	recipe tokenRecipe
	judge  *tokenJudge
	left   atomic.Int64 // grants to come
	lost   atomic.Int64 // sessions taken over
	silent atomic.Int64 // sessions lost by silence
	odd    atomic.Int64 // errors of acquire and release, all of which say that something was lost
}

// contend acquires and releases until the run is over. Its session is lost now and
// then, while it holds and while it waits.
func (run *tokenRun) contend(ctx context.Context, c *client.Client, id int) {
	r := rand.New(rand.NewPCG(uint64(id), uint64(len(run.recipe.name))))
	var s *client.Session
	for run.left.Load() > 0 && ctx.Err() == nil {
		if s == nil || s.Context().Err() != nil {
			s = run.open(ctx, c, id)
			continue
		}
		if r.IntN(300) == 0 { // while it waits
			stop := time.AfterFunc(time.Duration(r.IntN(10))*time.Millisecond, func() { run.takeOver(ctx, c, id) })
			run.turn(ctx, s, r)
			stop.Stop()
			continue
		}
		if t := run.turn(ctx, s, r); t != nil && r.IntN(150) == 0 {
			run.takeOver(ctx, c, id)
		} else if t != nil {
			run.note(t.release(ctx))
		}
	}
}

// open opens the session of a contender, in place of the one that it has.
func (run *tokenRun) open(ctx context.Context, c *client.Client, id int) *client.Session {
	s, err := c.NewSession(ctx, client.WithIdentity(fmt.Sprintf("%s-%d", run.recipe.name, id)))
	if err != nil && ctx.Err() == nil {
		run.t.Errorf("%s: open: %v", run.recipe.name, err)
	}
	return s
}

// fallSilent lets a contender of its own lose touch with the cluster while it
// holds, with a short session.
func (run *tokenRun) fallSilent(ctx context.Context, c *processes) {
	px, addresses := proxies(run.t, c.endpoints())
	cl := dial(run.t, addresses, client.WithSessionTimeout(2*time.Second), quiet)
	defer cl.Close()
	r := rand.New(rand.NewPCG(1, 2))
	for ctx.Err() == nil {
		t := run.turn(ctx, cl.Session(), r)
		if t == nil { // its place was deleted
			continue
		}
		for _, p := range px {
			p.refuse.Store(true)
			p.mute.Store(true)
			p.cut()
		}
		<-cl.Session().Context().Done()
		run.silent.Add(1)
		return
	}
}

// takeOver ends the session of a contender behind its back.
func (run *tokenRun) takeOver(ctx context.Context, c *client.Client, id int) {
	run.lost.Add(1)
	if s := run.open(ctx, c, id); s != nil {
		_ = s.Close(ctx)
	}
}

// turn is one acquisition. It returns nil if nothing is held.
func (run *tokenRun) turn(ctx context.Context, s *client.Session, r *rand.Rand) *turn {
	asked := time.Now()
	t, err := run.recipe.acquire(ctx, s, r)
	given := time.Now()
	if err != nil {
		run.note(err)
		return nil
	}
	left := run.left.Add(-1)
	for i := range t.holds {
		run.judge.pass(ctx, s.Client(), &t.holds[i], asked, given, left%int64(run.recipe.writes) == 0)
	}
	return t
}

// note counts an error. All there may be is that something was lost.
func (run *tokenRun) note(err error) {
	if err == nil {
		return
	}
	run.odd.Add(1)
	if errors.Is(err, lock.ErrLost) || errors.Is(err, client.ErrSessionExpired) {
		return
	}
	run.t.Errorf("%s: %v", run.recipe.name, err)
}

// TestTokensOfEachRecipeRise while leaders are killed, servers restart, the
// folders of the locks are deleted and sessions are lost, by silence and at once.
func TestTokensOfEachRecipeRise(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	ctx := testContext(t, 4*time.Minute)
	judge := newTokenJudge(t)
	watcher := dial(t, c.endpoints())
	for _, mark := range []string{"mutex", "rw", "semaphore", "slot-0", "slot-1", "slot-2", "multi-a", "multi-b", "multi-c", "election"} {
		must[client.Created](t)(watcher.Create(ctx, judgeNode(mark), nil))
	}
	var runs []*tokenRun
	var roots []string
	var work sync.WaitGroup
	for _, recipe := range tokenRecipes() {
		run := &tokenRun{t: t, recipe: recipe, judge: judge}
		run.left.Store(int64(recipe.grants))
		runs, roots = append(runs, run), append(roots, recipe.roots...)
		for id := range recipe.contenders {
			cl := dial(t, c.endpoints(), quiet)
			work.Go(func() { run.contend(ctx, cl, id) })
		}
		work.Go(func() { run.fallSilent(ctx, c) })
	}
	trouble := startTrouble(ctx, c, roots)
	work.Wait()
	trouble.stop()
	counts := judge.verdict()
	for _, run := range runs {
		if run.left.Load() > 0 {
			t.Errorf("%s: %d grants are missing", run.recipe.name, run.left.Load())
		}
		t.Logf("%s: %d sessions taken over, %d silent, %d errors", run.recipe.name, run.lost.Load(), run.silent.Load(), run.odd.Load())
	}
	t.Logf("%d holders were refused; %s; tokens %v", judge.refused, trouble, counts)
	c.waitReady(30 * time.Second)
	c.sameDigests()
	for _, root := range roots {
		queueLength(ctx, t, watcher, root, 0)
	}
}
