package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/once"
)

// NightlyJob shows a job that five hosts want to run, once a night. In the first
// night the host that runs it is killed before it has written anything, in the
// second after that and before it could say so; in the third nobody is. It
// returns nil only if the database has one run for each night and each is marked
// as done. Its layers are [Once] and [Idempotency].
func NightlyJob(ctx context.Context, o Options) error {
	return perform(ctx, "nightly-job", o, func(ctx context.Context, s *stage) error {
		db, err := s.startDatabase(ctx, jobSchema)
		if err != nil {
			return err
		}
		r := nightRun{stage: s, db: db, path: s.root + "/invoices", nights: nights}
		if !o.has(Once) {
			r.nights = nights[:1] // they are all alike
		}
		if r.watcher, err = s.as(ctx, "nightly-job"); err != nil {
			return err
		}
		for i := range jobHosts {
			h, err := s.worker(fmt.Sprintf("host %d", i+1), shortSession, db)
			if err != nil {
				return err
			}
			r.hosts = append(r.hosts, h)
		}
		s.say("hosts", "%d processes want to run %s each night", jobHosts, r.path)
		for _, n := range r.nights {
			if err := r.night(ctx, n); err != nil {
				return err
			}
		}
		return r.judge(ctx)
	})
}

const jobHosts = 5

// night is a period and what happens in it.
type night struct {
	period string
	killAt string // the event at which the host that runs the job is killed
	says   string
}

var nights = []night{
	{"2026-01-01", eventRunning, "is killed (SIGKILL) in the middle of its run"},
	{"2026-01-02", eventCommitted, "is killed (SIGKILL) after its commit, before it could say that the night is done"},
	{"2026-01-03", "", ""},
}

type nightRun struct {
	*stage
	db      *database
	path    string
	nights  []night
	watcher *client.Client
	hosts   []*workerProcess // that live
}

// hostEvent is what one host says.
type hostEvent struct {
	host *workerProcess
	workerEvent
	err error
}

// night lets the hosts run and kills the one that the script says.
func (r *nightRun) night(ctx context.Context, n night) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.say("clock", "the night of %s begins, on %d hosts at once", n.period, len(r.hosts))
	said := make(chan hostEvent)
	for _, h := range r.hosts {
		err := h.tell(command{Do: doJob, Job: &jobOrder{r.path, n.period}, Without: r.o.Without})
		if err != nil {
			return err
		}
		go h.forward(ctx, said)
	}
	for waiting := len(r.hosts); waiting > 0; {
		var e hostEvent
		select {
		case e = <-said:
		case <-ctx.Done():
			return fmt.Errorf("the night of %s does not end: %w", n.period, context.Cause(ctx))
		}
		alive := slices.Contains(r.hosts, e.host)
		switch {
		case e.err != nil && alive:
			return e.err
		case e.err != nil || e.Event == eventJobDone:
			waiting--
			r.sayDone(e)
		case n.killAt == e.Event:
			n.killAt = ""
			if err := r.kill(e.host, n, e.Token); err != nil {
				return err
			}
		default:
			if err := r.goOn(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// forward passes a host's events on until its part in the night is over.
func (w *workerProcess) forward(ctx context.Context, to chan<- hostEvent) {
	for {
		e, err := w.next(ctx)
		select {
		case to <- hostEvent{w, e, err}:
		case <-ctx.Done():
			return
		}
		if err != nil || e.Event == eventJobDone {
			return
		}
	}
}

// kill ends a host for good; its end is still to be heard of.
func (r *nightRun) kill(h *workerProcess, n night, t fence.Token) error {
	r.hosts = slices.DeleteFunc(slices.Clone(r.hosts), func(o *workerProcess) bool { return o == h })
	r.say(h.name, "runs the job, token %s, and %s", t, n.says)
	return h.kill()
}

// goOn lets a host go on from where it asked.
func (r *nightRun) goOn(e hostEvent) error {
	switch {
	case e.Event == eventRunning:
		r.say(e.host.name, "runs the job, token %s", e.Token)
	case e.Repeated:
		r.say(e.host.name, "AlreadyProcessed: the invoices are there, from the run that was killed")
	default:
		r.say(e.host.name, "has written the invoices")
	}
	return e.host.tell(command{Do: doProceed})
}

func (r *nightRun) sayDone(e hostEvent) {
	if e.err == nil && !r.o.has(Once) {
		r.say(e.host.name, "has run the job: it knows of nobody else")
	}
}

// judge asks the database how often the job ran, and the cluster who says so.
func (r *nightRun) judge(ctx context.Context) error {
	var errs []error
	for _, n := range r.nights {
		runs, host, token, err := r.applied(ctx, n.period)
		if err != nil {
			return err
		}
		if !r.o.has(Once) {
			r.say("database", "%s: runs: %d", n.period, runs)
		} else if err := r.marked(ctx, n, runs, host, token); err != nil {
			errs = append(errs, err)
		}
		switch {
		case runs > 1:
			errs = append(errs, r.broken(ErrLogicalRepeat, "the job of %s was applied %d times", n.period, runs))
		case runs == 0:
			errs = append(errs, r.broken(ErrNeverRun, "the job of %s was not applied", n.period))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return r.kept("each night has one applied run, whoever was killed")
}

// marked compares the marker of a night with the database's first run.
func (r *nightRun) marked(ctx context.Context, n night, runs int64, host string, token fence.Token) error {
	d, ok, err := once.New(r.watcher, r.path).Done(ctx, n.period)
	if err != nil {
		return err
	}
	if !ok {
		return r.broken(ErrNeverRun, "the night of %s is not marked as done", n.period)
	}
	r.say("database", "%s: runs: %d, applied by %s under token %s; marked as done by %s under token %s", n.period, runs, host, token, d.By, d.Token)
	if d.Token < token {
		return r.broken(ErrUnexpected, "the marker's token is older than the run's")
	}
	return nil
}

// applied counts the runs of a night; host and token are those of the first.
func (r *nightRun) applied(ctx context.Context, period string) (runs int64, host string, t fence.Token, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT count(*), coalesce((array_agg(host ORDER BY id))[1], ''),
		coalesce((array_agg(token ORDER BY id))[1], 0) FROM invoice_run WHERE period = $1`, period).Scan(&runs, &host, &t)
	return runs, host, t, err
}
