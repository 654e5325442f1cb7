package demo

import (
	"bufio"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/lock"
)

// workerConfig tells a worker process who it is. It travels as JSON in one
// argument.
type workerConfig struct {
	Name           string        `json:"name"`
	Cluster        Cluster       `json:"cluster"`
	Database       string        `json:"database,omitempty"` // data source name
	SessionTimeout time.Duration `json:"sessionTimeout"`
}

// command is what a worker is told to do, one a line.
type command struct {
	Do   string `json:"do"`
	Lock string `json:"lock,omitempty"` // path
	// SessionTimeout is that of the session to take the lock in, if it is to be
	// another than the worker's.
	SessionTimeout time.Duration `json:"sessionTimeout,omitempty"`

	Transfer *transfer `json:"transfer,omitempty"`
	Job      *jobOrder `json:"job,omitempty"`
	Without  []Layer   `json:"without,omitempty"`
}

// workerEvent is a worker's answer, one a line.
type workerEvent struct {
	Event       string      `json:"event"` // one of those below
	Token       fence.Token `json:"token,omitempty"`
	Session     string      `json:"session,omitempty"` // and the server that serves it
	Node        string      `json:"node,omitempty"`    // path of the queue entry
	Detail      string      `json:"detail,omitempty"`
	ContextDone bool        `json:"contextDone,omitempty"`
	Cause       string      `json:"cause,omitempty"`
	Receipt     *receipt    `json:"receipt,omitempty"`
	Period      string      `json:"period,omitempty"`
	Repeated    bool        `json:"repeated,omitempty"`
	By          string      `json:"by,omitempty"`
}

// Events.
const (
	eventAcquired  = "acquired"
	eventReleased  = "released"
	eventNotOwner  = "not owner"
	eventBusy      = "busy" // another has the lock
	eventDone      = "done"
	eventWrote     = "wrote"
	eventRefused   = "refused"
	eventMoved     = "moved"     // a transfer has one of its outcomes
	eventRunning   = "running"   // a job has its turn and waits for a word
	eventCommitted = "committed" // the job's transaction, likewise
	eventJobDone   = "job done"
	eventFailed    = "failed"
)

// Commands. Those of a job are with it.
const (
	doAcquire       = "acquire"
	doEnter         = "enter" // take a token and wait for nobody
	doTry           = "try"   // take the lock if it is free
	doRelease       = "release"
	doReleaseByPath = "release by path"
	doWrite         = "write"
	doTransfer      = "transfer"
	doBegin         = "begin" // to work, as the ledger has it
	doEnd           = "end"
	doJob           = "job"
	doProceed       = "proceed"
)

// deeds are how a worker does what it is told.
var deeds = map[string]func(*worker, context.Context, command) (workerEvent, error){
	doAcquire:       (*worker).acquire,
	doEnter:         (*worker).enter,
	doTry:           (*worker).try,
	doRelease:       (*worker).release,
	doReleaseByPath: (*worker).releaseByPath,
	doWrite:         (*worker).write,
	doTransfer:      (*worker).transfer,
	doBegin:         (*worker).begin,
	doEnd:           (*worker).finish,
	doJob:           (*worker).runJob,
}

// worker does as it is told. It ignores that it may have lost its lock: that is
// the point of most demonstrations.
type worker struct {
	workerConfig
	in     *bufio.Scanner
	out    *json.Encoder
	db     *sql.DB
	client *client.Client // nil before the first command that needs it
	handle *lock.Handle   // nil without a lock
	token  fence.Token    // of the last acquisition
	entry  int64          // in the ledger

	timeout time.Duration // that client asked for
}

// RunWorker is the body of a worker process: it does what the lines of in say
// until they end, and says what came of each on out.
func RunWorker(ctx context.Context, config string, in io.Reader, out io.Writer) error {
	w := worker{in: bufio.NewScanner(in), out: json.NewEncoder(out)}
	if err := json.Unmarshal([]byte(config), &w.workerConfig); err != nil {
		return fmt.Errorf("worker configuration: %w", err)
	}
	err := w.run(ctx)
	if err != nil {
		_ = w.out.Encode(workerEvent{Event: eventFailed, Detail: err.Error()})
	}
	return err
}

func (w *worker) run(ctx context.Context) (err error) {
	if w.db, err = openDatabase(w.Database); err != nil {
		return err
	}
	defer w.db.Close()
	defer func() {
		if w.client != nil {
			_ = w.client.Close() // its session may have ended by now
		}
	}()
	for {
		c, err := w.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		do := deeds[c.Do]
		if do == nil {
			return fmt.Errorf("unknown command %q", c.Do)
		}
		e, err := do(w, ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Do, err)
		}
		if err := w.out.Encode(e); err != nil {
			return err
		}
	}
}

// next reads a command, io.EOF after the last.
func (w *worker) next() (c command, err error) {
	if !w.in.Scan() {
		if err := w.in.Err(); err != nil {
			return c, err
		}
		return c, io.EOF
	}
	return c, json.Unmarshal(w.in.Bytes(), &c)
}

// ask says how far it is in the middle of a command and waits for a word.
func (w *worker) ask(e workerEvent) error {
	if err := w.out.Encode(e); err != nil {
		return err
	}
	c, err := w.next()
	if err == nil && c.Do != doProceed {
		err = fmt.Errorf("%q in place of %q", c.Do, doProceed)
	}
	return err
}

// session opens a session, and another one when that is over or has another
// timeout; 0 is the worker's own.
func (w *worker) session(ctx context.Context, timeout time.Duration) (*client.Client, error) {
	timeout = cmp.Or(timeout, w.SessionTimeout)
	if w.client != nil && w.client.Session().Context().Err() == nil && w.timeout == timeout {
		return w.client, nil
	}
	if w.client != nil {
		_ = w.client.Close() // its session may be over
		w.client = nil
	}
	c, err := w.Cluster.dial(ctx, client.WithSessionTimeout(timeout), client.WithSessionName("worker "+w.Name))
	w.client, w.timeout = c, timeout
	return c, err
}

// sessionAt names a client's session and the server that serves it now.
func sessionAt(c *client.Client) string {
	s := c.Session()
	if s.Server() == "" {
		return s.ID().String()
	}
	return s.ID().String() + " at " + s.Server()
}
