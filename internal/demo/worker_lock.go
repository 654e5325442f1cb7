package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/lock"
)

// acquire takes the lock, if need be with a session of its own for each try: a
// cluster in trouble may cost it its place in the queue.
func (w *worker) acquire(ctx context.Context, c command) (workerEvent, error) {
	return w.take(ctx, c, (*lock.Mutex).Acquire)
}

// try does not wait for the lock.
func (w *worker) try(ctx context.Context, c command) (workerEvent, error) {
	return w.take(ctx, c, (*lock.Mutex).TryAcquire)
}

func (w *worker) take(ctx context.Context, c command, how func(*lock.Mutex, context.Context) (*lock.Handle, error)) (workerEvent, error) {
	for {
		conn, err := w.session(ctx, c.SessionTimeout)
		if err != nil {
			return workerEvent{}, err
		}
		h, err := how(lock.New(conn, c.Lock, lock.Owner("worker "+w.Name)), ctx)
		var busy *lock.BusyError
		switch {
		case placeLost(err):
			if err := lookAgain(ctx); err != nil {
				return workerEvent{}, err
			}
		case errors.As(err, &busy):
			return workerEvent{Event: eventBusy, Token: busy.Holder.Token, Detail: busy.Error()}, nil
		case err != nil:
			return workerEvent{}, err
		default:
			w.handle, w.token = h, h.FencingToken()
			return workerEvent{Event: eventAcquired, Token: w.token, Session: sessionAt(conn), Node: h.Node()}, nil
		}
	}
}

// placeLost says that a contender may try again: with a new session, or because
// the lock's folder was reaped, being empty, while it was made.
func placeLost(err error) bool {
	return errors.Is(err, lock.ErrLost) || errors.Is(err, client.ErrSessionExpired) || errors.Is(err, client.ErrNoNode)
}

// enter takes a token as a contender does, and does not wait for its turn.
func (w *worker) enter(ctx context.Context, c command) (workerEvent, error) {
	conn, err := w.session(ctx, c.SessionTimeout)
	if err != nil {
		return workerEvent{}, err
	}
	made, err := takeTicket(ctx, conn, c.Lock)
	if err != nil {
		return workerEvent{}, err
	}
	w.handle, w.token = nil, fence.Token(made.Stat.Czxid)
	return workerEvent{Event: eventAcquired, Token: w.token, Session: sessionAt(conn), Node: made.Path}, nil
}

// takeTicket makes a queue entry below path and what is missing of path.
func takeTicket(ctx context.Context, c *client.Client, path string) (client.Created, error) {
	for {
		made, err := c.Create(ctx, path+"/lock-", nil, client.WithEphemeral(), client.WithSequential())
		if !errors.Is(err, client.ErrNoNode) {
			return made, err
		}
		if err := makeFolder(ctx, c, path); err != nil {
			return made, err
		}
	}
}

// release gives the lock up. That it was another's by then is an answer, too.
func (w *worker) release(ctx context.Context, _ command) (workerEvent, error) {
	if w.handle == nil {
		return workerEvent{Event: eventReleased, Token: w.token}, nil
	}
	err := w.handle.Release(ctx)
	switch {
	case err == nil:
		return workerEvent{Event: eventReleased, Token: w.token}, nil
	case errors.Is(err, lock.ErrLost):
		return workerEvent{Event: eventNotOwner, Token: w.token, Detail: err.Error()}, nil
	default:
		return workerEvent{}, err
	}
}

// releaseByPath is the release that does not ask whose lock it is: it deletes
// whoever stands first in the queue.
func (w *worker) releaseByPath(ctx context.Context, c command) (workerEvent, error) {
	conn, err := w.session(ctx, c.SessionTimeout)
	if err != nil {
		return workerEvent{}, err
	}
	names, err := conn.Children(ctx, c.Lock)
	if err != nil {
		return workerEvent{}, err
	}
	if len(names) == 0 {
		return workerEvent{}, fmt.Errorf("%s: nobody holds it", c.Lock)
	}
	first := slices.MinFunc(names, byNumber)
	if err := conn.Delete(ctx, c.Lock+"/"+first, client.AnyVersion); err != nil {
		return workerEvent{}, err
	}
	return workerEvent{Event: eventReleased, Token: w.token, Node: c.Lock + "/" + first}, nil
}

// begin and finish stand for the work that a lock is to keep from being done
// twice. Only the ledger remembers it.
func (w *worker) begin(ctx context.Context, _ command) (e workerEvent, err error) {
	w.entry, err = (&ledger{w.db}).enter(ctx, w.Name, w.token)
	return workerEvent{Event: eventDone, Token: w.token}, err
}

func (w *worker) finish(ctx context.Context, _ command) (workerEvent, error) {
	return workerEvent{Event: eventDone, Token: w.token}, (&ledger{w.db}).leave(ctx, w.entry)
}
