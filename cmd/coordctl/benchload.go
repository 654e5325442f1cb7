package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/coordd/coord/client"
)

// loader keeps the requests of one client in flight. An answer's callback makes
// the next request, so that a request costs the generator no goroutine and no
// wait.
type loader struct {
	bench  *bench
	client *client.Client
	parent string
	reads  int // of 100
	create bool

	// mu guards what follows. Callbacks of one client come from one goroutine,
	// except around a reconnect.
	mu      sync.Mutex
	rng     *rand.Rand
	tally   tally
	flying  int
	stopped chan struct{} // closed when nothing is in flight any more
}

// slot is one of a client's requests, made over and over.
type slot struct {
	*loader
	sent    time.Duration
	written func([]client.OpResult, error)
	got     func(client.Node, error)
}

// readPercent is how many of 100 requests are reads.
var readPercent = map[string]int{benchGet: 100, benchMixed: 90}

// startLoad begins the load; the result waits for its end, which finished
// brings, and counts it together.
func (b *bench) startLoad(context.Context) (wait func() *tally) {
	loaders := make([]*loader, len(b.clients))
	for i, c := range b.clients {
		l := &loader{
			bench: b, client: c, parent: b.parent(i) + "/e-", create: b.options.workload == benchCreate,
			reads: readPercent[b.options.workload], rng: rand.New(rand.NewPCG(uint64(i), 7)), stopped: make(chan struct{}),
		}
		loaders[i] = l
		l.flying = b.options.depth
		for range b.options.depth {
			s := &slot{loader: l}
			s.written = func(_ []client.OpResult, err error) { s.done(err) }
			s.got = func(_ client.Node, err error) { s.done(err) }
			s.next()
		}
	}
	return func() *tally {
		total := new(tally)
		for _, l := range loaders {
			<-l.stopped
			l.mu.Lock()
			total.merge(&l.tally)
			l.mu.Unlock()
		}
		return total
	}
}

// next makes one request.
func (s *slot) next() {
	b := s.bench
	s.mu.Lock()
	read := s.reads > 0 && s.rng.IntN(100) < s.reads
	var key string
	if !s.create {
		key = b.keys[s.rng.IntN(len(b.keys))]
	}
	s.mu.Unlock()
	s.sent = time.Since(b.start)
	var err error
	switch {
	case s.create:
		err = s.client.WriteAsync(s.written, client.OpCreate(s.parent, b.value, client.WithSequential()))
	case read:
		err = s.client.GetAsync(key, s.got)
	default:
		err = s.client.WriteAsync(s.written, client.OpSet(key, b.value, client.AnyVersion))
	}
	if err != nil { // the session is over: this slot ends
		s.end(err)
	}
}

// done counts an answer and goes on.
func (s *slot) done(err error) {
	phase := s.bench.phase.Load()
	if phase == measuring {
		took := time.Since(s.bench.start) - s.sent
		s.mu.Lock()
		if err != nil {
			s.tally.fail(err)
		} else {
			s.tally.latency.add(took)
		}
		s.mu.Unlock()
	}
	if phase == finished {
		s.end(nil)
		return
	}
	s.next()
}

func (s *slot) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.tally.fail(err)
	}
	if s.flying--; s.flying == 0 {
		close(s.stopped)
	}
}
