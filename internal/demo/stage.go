package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/coordd/coord/client"
)

const (
	// limit bounds a whole demonstration. It is long because the cluster may be
	// in trouble of its own meanwhile, and that must only delay it.
	limit = 2 * time.Minute
	// shortSession is the timeout of sessions that are to be lost: the shortest
	// that a cluster grants unless configured otherwise.
	shortSession = 2 * time.Second
	// longSession is the timeout of those that are not.
	longSession = 20 * time.Second
)

// stage is what a demonstration plays on. It is used by one goroutine, except
// where a method says otherwise.
type stage struct {
	*timeline
	o       Options
	cluster Cluster
	own     *ownCluster // nil where the cluster is somebody's
	root    string      // this run's own znode, with all that it leaves below
	clients []*client.Client
	actors  map[string]*client.Client
	workers []*workerProcess
	endings []func() error // in the order of their making
}

// perform sets a stage up in which the demonstration called name has a cluster,
// lets it act, and clears everything away.
func perform(ctx context.Context, name string, o Options, act func(context.Context, *stage) error) error {
	return performBare(ctx, name, o, func(ctx context.Context, s *stage) error {
		if err := s.setCluster(ctx); err != nil {
			return err
		}
		if err := s.makeRoot(ctx); err != nil {
			return err
		}
		return act(ctx, s)
	})
}

// performBare is perform for an act that needs no cluster.
func performBare(ctx context.Context, name string, o Options, act func(context.Context, *stage) error) (err error) {
	most := limit + o.more
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("not done within %s", most))
	defer cancel()
	s := &stage{timeline: newTimeline(o.Out), o: o, root: "/demo/" + name + "/" + rand.Text()[:6], actors: map[string]*client.Client{}}
	defer func() { err = errors.Join(err, s.end()) }()
	return act(ctx, s)
}

func (s *stage) setCluster(ctx context.Context) error {
	if s.o.Cluster.Endpoints != "" {
		s.cluster = s.o.Cluster
		s.say("cluster", "using %s", s.cluster.Endpoints)
		return nil
	}
	own, err := startCluster(ctx)
	if err != nil {
		return err
	}
	s.atEnd(own.close)
	s.own, s.cluster = own, Cluster{Endpoints: own.target()}
	s.say("cluster", "three servers are ready at %s", s.cluster.Endpoints)
	return nil
}

// atEnd has f called when the stage is cleared, last come first served.
func (s *stage) atEnd(f func() error) { s.endings = append(s.endings, f) }

func (s *stage) end() error {
	for _, w := range s.workers {
		w.end()
	}
	for _, c := range s.clients {
		_ = c.Close() // its session ends by itself at the latest
	}
	s.sweep()
	var errs []error
	for i := len(s.endings) - 1; i >= 0; i-- {
		errs = append(errs, s.endings[i]())
	}
	return errors.Join(errs...)
}

// dial opens a session in this process.
func (s *stage) dial(ctx context.Context, name string, opts ...client.Option) (*client.Client, error) {
	c, err := s.cluster.dial(ctx, append([]client.Option{client.WithSessionName(name), client.WithSessionTimeout(longSession)}, opts...)...)
	if err != nil {
		return nil, err
	}
	s.clients = append(s.clients, c)
	return c, nil
}

// as is the session of an actor in this process, opened when it is first asked
// for.
func (s *stage) as(ctx context.Context, actor string) (*client.Client, error) {
	if c := s.actors[actor]; c != nil {
		return c, nil
	}
	c, err := s.dial(ctx, actor)
	if err == nil {
		s.actors[actor] = c
	}
	return c, err
}

// dial connects without a word on standard error: the timeline says it.
func (c *Cluster) dial(ctx context.Context, more ...client.Option) (*client.Client, error) {
	opts := append(c.options(), client.WithLogger(slog.New(slog.DiscardHandler)))
	return client.Dial(ctx, c.Endpoints, append(opts, more...)...)
}
