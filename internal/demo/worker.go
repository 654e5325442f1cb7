package demo

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/sqlfence"
	"github.com/coordd/coord/recipes/lock"
)

// WorkerConfig tells a worker process what to do. It travels as JSON in one
// argument.
type WorkerConfig struct {
	Name           string        `json:"name"`
	Cluster        Cluster       `json:"cluster"`
	LockPath       string        `json:"lockPath"`
	Database       string        `json:"database"` // data source name
	Resource       string        `json:"resource"`
	SessionTimeout time.Duration `json:"sessionTimeout"`
	Fencing        bool          `json:"fencing"`
}

// workerEvent is one line that a worker prints.
type workerEvent struct {
	Event       string      `json:"event"` // acquired, wrote, refused, released, failed
	Token       fence.Token `json:"token,omitempty"`
	Session     string      `json:"session,omitempty"`
	Detail      string      `json:"detail,omitempty"`
	ContextDone bool        `json:"contextDone,omitempty"`
	Cause       string      `json:"cause,omitempty"`
}

// Commands that a worker reads, one a line.
const (
	commandWrite   = "write"
	commandRelease = "release"
)

// RunWorker is the body of a worker process: it takes the lock, says so on
// out, and then does what the lines of in say until they end. It ignores that
// it may have lost the lock: that is the point of the demonstration.
func RunWorker(ctx context.Context, config string, in io.Reader, out io.Writer) error {
	var c WorkerConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return fmt.Errorf("worker configuration: %w", err)
	}
	w := worker{WorkerConfig: c, out: json.NewEncoder(out)}
	err := w.run(ctx, in)
	if err != nil {
		_ = w.out.Encode(workerEvent{Event: "failed", Detail: err.Error()})
	}
	return err
}

type worker struct {
	WorkerConfig
	out    *json.Encoder
	db     *sql.DB
	handle *lock.Handle
}

func (w *worker) run(ctx context.Context, in io.Reader) error {
	db, err := sql.Open("pgx", w.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	w.db = db
	opts := append(w.Cluster.options(), client.WithSessionTimeout(w.SessionTimeout), client.WithSessionName("worker "+w.Name),
		client.WithLogger(slog.New(slog.DiscardHandler))) // the timeline says it
	c, err := client.Dial(ctx, w.Cluster.Endpoints, opts...)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // its session has ended by now
	if w.handle, err = lock.New(c, w.LockPath, lock.Owner("worker "+w.Name)).Acquire(ctx); err != nil {
		return err
	}
	err = w.out.Encode(workerEvent{Event: "acquired", Token: w.handle.FencingToken(), Session: c.Session().ID().String()})
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if err := w.obey(ctx, lines.Text()); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (w *worker) obey(ctx context.Context, command string) error {
	switch command {
	case commandWrite:
		return w.out.Encode(w.write(ctx))
	case commandRelease:
		if err := w.handle.Release(ctx); err != nil {
			return err
		}
		return w.out.Encode(workerEvent{Event: "released", Token: w.handle.FencingToken()})
	default:
		return fmt.Errorf("unknown command %q", command)
	}
}

// write writes to the database whatever the handle says, and reports both.
func (w *worker) write(ctx context.Context) workerEvent {
	e := workerEvent{Token: w.handle.FencingToken()}
	if hc := w.handle.Context(); hc.Err() != nil {
		e.ContextDone, e.Cause = true, context.Cause(hc).Error()
	}
	err := w.save(ctx)
	switch {
	case err == nil:
		e.Event = "wrote"
	case errors.Is(err, fence.ErrStale):
		e.Event, e.Detail = "refused", err.Error()
	default:
		e.Event, e.Detail = "failed", err.Error()
	}
	return e
}

func (w *worker) save(ctx context.Context) error {
	const update = `UPDATE report SET author = $1, token = $2 WHERE id = 1`
	token := int64(w.handle.FencingToken())
	if !w.Fencing {
		_, err := w.db.ExecContext(ctx, update, w.Name, token)
		return err
	}
	return sqlfence.WithTx(ctx, w.db, w.Resource, w.handle.FencingToken(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, update, w.Name, token)
		return err
	})
}
