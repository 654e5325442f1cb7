package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/coordd/coord/fence/sqlfence"
	"github.com/coordd/coord/internal/pgtest"
)

// Options say where and how a demonstration runs.
type Options struct {
	// Cluster to use; without endpoints: start one.
	Cluster Cluster
	// Worker is the command that runs RunWorker with one more argument.
	Worker []string
	// Fencing off lets the database take every write: the damage is shown and
	// the demonstration fails.
	Fencing bool
	// Out receives the timeline.
	Out io.Writer
}

var (
	// ErrCorrupted is returned when an old holder's write replaced a newer one's.
	ErrCorrupted = errors.New("the old holder's write replaced the newer one's")
	// ErrNotTold is returned when the old holder's write was refused but its
	// context had not been cancelled before.
	ErrNotTold = errors.New("the old holder's context was not cancelled before its write")
)

const (
	demoLock     = "/demo/paused-worker"
	demoResource = "report"
	demoTimeout  = 2 * time.Second // session timeout of the workers
	demoLimit    = 45 * time.Second
)

// PausedWorker shows the reason for fencing: worker A holds the lock and is
// stopped for longer than its session lasts; B gets the lock and writes; A
// goes on and writes with its old token. It returns nil only if the database
// refused A and A's context was already cancelled.
func PausedWorker(ctx context.Context, o Options) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, demoLimit, fmt.Errorf("not done within %s", demoLimit))
	defer cancel()
	l := newTimeline(o.Out)
	reach, stop, err := clusterFor(ctx, o.Cluster, l)
	if err != nil {
		return err
	}
	defer stop()
	pg, err := pgtest.Start(ctx, pgtest.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Close()) }()
	db, err := sql.Open("pgx", pg.DSN(pgtest.Database))
	if err != nil {
		return err
	}
	defer db.Close()
	if err := prepare(ctx, db); err != nil {
		return fmt.Errorf("prepare the database: %w", err)
	}
	l.say("database", "PostgreSQL is ready; fencing is %s", onOff(o.Fencing))
	run := pausedRun{timeline: l, db: db, command: o.Worker, config: WorkerConfig{
		Cluster: reach, LockPath: demoLock, Database: pg.DSN(pgtest.Database), Resource: demoResource,
		SessionTimeout: demoTimeout, Fencing: o.Fencing,
	}}
	return run.play(ctx)
}

func clusterFor(ctx context.Context, given Cluster, l *timeline) (Cluster, func(), error) {
	if given.Endpoints != "" {
		l.say("cluster", "using %s", given.Endpoints)
		return given, func() {}, nil
	}
	coordd, err := findCoordd()
	if err != nil {
		return Cluster{}, nil, err
	}
	c, err := startCluster(ctx, coordd)
	if err != nil {
		return Cluster{}, nil, err
	}
	l.say("cluster", "three servers are ready at %s", strings.Join(c.endpoints, ","))
	return Cluster{Endpoints: strings.Join(c.endpoints, ",")}, func() { _ = c.close() }, nil
}

func prepare(ctx context.Context, db *sql.DB) error {
	if err := sqlfence.Migrate(ctx, db); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, `
		CREATE TABLE report (id int PRIMARY KEY, author text NOT NULL, token bigint NOT NULL);
		INSERT INTO report VALUES (1, 'nobody', 0)`)
	return err
}

// pausedRun is one run of the demonstration.
type pausedRun struct {
	*timeline
	db      *sql.DB
	command []string
	config  WorkerConfig
}

func (r *pausedRun) play(ctx context.Context) error {
	a, err := r.worker(ctx, "A")
	if err != nil {
		return err
	}
	defer a.end()
	if err := a.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	r.say("A", "is stopped (SIGSTOP): it cannot notice that its %s session ends", demoTimeout)
	b, err := r.worker(ctx, "B")
	if err != nil {
		return err
	}
	defer b.end()
	fresh, err := b.do(ctx, commandWrite)
	if err != nil {
		return err
	}
	r.say("B", "writes with token %s: %s", fresh.Token, verdict(fresh))
	if err := a.signal(syscall.SIGCONT); err != nil {
		return err
	}
	r.say("A", "goes on (SIGCONT) and finishes what it was about to do")
	time.Sleep(200 * time.Millisecond) // A's work between waking up and writing
	late, err := a.do(ctx, commandWrite)
	if err != nil {
		return err
	}
	r.say("A", "writes with token %s: %s", late.Token, verdict(late))
	if late.ContextDone {
		r.say("A", "its context was cancelled before the write: %s", late.Cause)
	} else {
		r.say("A", "its context was NOT cancelled before the write")
	}
	return r.judge(ctx, late)
}

// worker starts a worker and waits until it has the lock.
func (r *pausedRun) worker(ctx context.Context, name string) (*workerProcess, error) {
	c := r.config
	c.Name = name
	w, err := startWorker(r.command, c)
	if err != nil {
		return nil, err
	}
	e, err := w.next(ctx)
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	r.say(name, "holds %s: session %s, token %s", demoLock, e.Session, e.Token)
	return w, nil
}

func (r *pausedRun) judge(ctx context.Context, late workerEvent) error {
	var author string
	var token int64
	if err := r.db.QueryRowContext(ctx, `SELECT author, token FROM report WHERE id = 1`).Scan(&author, &token); err != nil {
		return err
	}
	r.say("database", "the row is by %s, token %d", author, token)
	switch {
	case author != "B" || late.Event != "refused":
		r.say("verdict", "CORRUPTED: A's late write replaced B's")
		return ErrCorrupted
	case !late.ContextDone:
		r.say("verdict", "the write was refused, but A had not been told")
		return ErrNotTold
	default:
		r.say("verdict", "the database refused the late write, and A had been told")
		return nil
	}
}

func verdict(e workerEvent) string {
	if e.Event == "refused" {
		return "REFUSED, " + e.Detail
	}
	return "accepted"
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "OFF"
}
