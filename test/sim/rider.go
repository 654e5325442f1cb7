package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/check"
)

// rider is one program that uses the cluster: it has a client, works with it,
// and makes itself a new one when its session is over.
type rider struct {
	w      *world
	number int
	rnd    *rand.Rand // of the rider's own goroutine

	stopping atomic.Bool
	atRest   func()       // to be called when it does nothing more but watch
	answers  atomic.Int64 // calls that were answered
	writes   int          // makes each datum one of its own
	lives    int

	mu       sync.Mutex // guards below
	machine  *machine
	client   *check.Client // nil between two lives, and on the ZooKeeper port
	silent   func()        // records that nothing is heard of this life any more; nil between two
	cutOff   bool          // it is cut off for good
	vanished chan struct{} // closed when this life is to end without a word
	doing    string
}

func (w *world) newRider(i int) *rider {
	r := &rider{w: w, number: i, rnd: rand.New(rand.NewPCG(w.cfg.Seed, uint64(1000+i)))}
	r.reborn()
	return r
}

// reborn gives the rider a new machine.
func (r *rider) reborn() (*machine, chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lives++
	r.machine = newMachine(fmt.Sprintf("c%d-%d", r.number, r.lives))
	r.machine.target = r.w.targetOf(r.number)
	r.vanished, r.cutOff = make(chan struct{}), false
	return r.machine, r.vanished
}

func (r *rider) hostName() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.host
}

// run lives one life after the other until stopping.
func (r *rider) run() {
	defer r.atRest()
	for first := true; !r.stopping.Load(); first = false {
		m, vanished := r.machine, r.vanished
		if !first {
			m, vanished = r.reborn()
		}
		if err := r.live(m, vanished); err != nil {
			r.w.wrong("%s: %v", m.host, err)
			return
		}
	}
}

// live is one session, from Dial to its end.
func (r *rider) live(m *machine, vanished chan struct{}) error {
	r.says("dial")
	if r.onZooKeeper() {
		return r.liveZK(m, vanished)
	}
	c, err := r.w.dialFrom(m, r.identity(), r.w.cfg.sessionTimeout()*time.Duration(1+r.rnd.IntN(2)))
	if err != nil {
		return err
	}
	cl := r.w.history.Client(m.host, c)
	r.mu.Lock()
	r.client, r.silent = cl, cl.Silent
	r.mu.Unlock()
	ctx, end := context.WithCancel(c.Session().Context())
	defer end()
	var work sync.WaitGroup
	if r.number%2 == 0 {
		work.Go(func() { r.watch(ctx, cl) })
	}
	if r.number%3 == 1 {
		work.Go(func() { r.observe(ctx, cl) })
	}
	r.work(ctx, m, vanished, func(ctx context.Context) error { return doOne(ctx, r, allActs, cl) })
	r.rest(ctx, vanished)
	r.says("close")
	end()
	r.mu.Lock()
	r.client, r.silent = nil, nil
	r.mu.Unlock()
	_ = cl.Close() // it may be cut off, or over
	work.Wait()
	return nil
}

// work does one thing after the other.
func (r *rider) work(ctx context.Context, m *machine, vanished chan struct{}, act func(context.Context) error) {
	for ctx.Err() == nil && !r.stopping.Load() {
		select {
		case <-vanished:
			return
		case <-ctx.Done():
			return
		case <-time.After(r.think()):
		}
		m.awake()
		if err := act(ctx); err == nil || !errors.Is(err, client.ErrUnavailable) && ctx.Err() == nil {
			r.answers.Add(1)
		}
	}
}

// rest is what comes behind the last work: the watch goes on, unless it is cut off
// for good.
func (r *rider) rest(ctx context.Context, vanished chan struct{}) {
	select {
	case <-vanished:
		return
	default:
	}
	if !r.stopping.Load() {
		return
	}
	r.says("rest")
	r.atRest()
	select {
	case <-r.w.rested:
	case <-ctx.Done():
	}
}

// think is the time between two calls: often short, at times long.
func (r *rider) think() time.Duration {
	p := r.rnd.ExpFloat64() * thinkPaces
	if r.rnd.IntN(30) == 0 {
		p += 40 * r.rnd.Float64()
	}
	if f := r.w.cfg.Slower; f != nil {
		p *= f(time.Since(r.w.began))
	}
	return r.w.cfg.paces(p)
}

const thinkPaces = 1.0

// says notes what the rider is at, for when it does not end.
func (r *rider) says(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doing = what
}

// did is what the rider is at.
func (r *rider) did() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.doing
}

// suffer is what happens to a rider's client.
func (r *rider) suffer(s Step) bool {
	r.mu.Lock()
	m, cl, silent, vanished := r.machine, r.client, r.silent, r.vanished
	r.mu.Unlock()
	if silent == nil {
		return false
	}
	switch s.Kind {
	case PauseClient:
		resume, thaw := m.pause(), r.w.net.Freeze(m.host)
		r.w.sleep(s.Lasts)
		resume()
		thaw()
		return true
	case LoseClient:
		return r.vanish(m, silent, vanished)
	default: // EndSession
		return r.takeOver(m, cl)
	}
}

// identity is what some riders have, and others have not.
func (r *rider) identity() string {
	if r.number%2 == 0 {
		return ""
	}
	return fmt.Sprintf("rider-%d", r.number)
}

// takeOver ends the session of a rider with an identity by another one's.
func (r *rider) takeOver(m *machine, cl *check.Client) bool {
	if r.identity() == "" || cl == nil {
		return false
	}
	now := r.w.history.Now()
	r.w.history.Add(check.Record{Kind: check.Killed, Client: "operator", Session: cl.Session().ID(), Begin: now, End: now})
	c, err := r.w.dialFrom(newMachine(m.host+"-other"), r.identity(), r.w.cfg.sessionTimeout())
	if err != nil {
		return false
	}
	_ = c.Close() // it may have been taken over itself
	return true
}

// vanish cuts the client off for good and makes the rider begin anew.
func (r *rider) vanish(m *machine, silent func(), vanished chan struct{}) bool {
	r.mu.Lock()
	select {
	case <-vanished:
		r.mu.Unlock()
		return false
	default:
	}
	close(vanished)
	r.cutOff = true
	r.mu.Unlock()
	r.w.net.CutOff(m.host)
	silent()
	return true
}
