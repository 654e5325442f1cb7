package main

import (
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/coordd/coord/client"
)

const (
	// historyIdle is how long nothing may come before all that is known has come.
	historyIdle = 300 * time.Millisecond
	// historySpan is how many transactions back the search for the oldest known
	// one begins.
	historySpan = client.Zxid(1) << 34
)

// lockHistory is what the servers still know of the changes of a lock.
type lockHistory struct {
	since   client.Zxid // every change after it is known; 0 if none is
	changes []client.Event
	clock   zxidClock
}

// readHistory asks for all changes of a lock that are still known, and for the
// times of other changes, as a deletion does not say when it was.
func readHistory(ctx context.Context, c *client.Client, lock string, answered func()) (*lockHistory, error) {
	now, err := c.Sync(ctx)
	if err != nil {
		return nil, err
	}
	answered()
	h := &lockHistory{}
	if h.since, err = oldestKnown(ctx, c, lock, now, answered); err != nil || h.since == 0 {
		return h, err
	}
	note := func(ev client.Event) { h.clock.note(&ev) }
	if err := replay(ctx, c, "/", h.since, now, note, answered); err != nil && !errors.Is(err, client.ErrNoAuth) {
		return nil, err
	}
	err = replay(ctx, c, lock, h.since, now, func(ev client.Event) {
		h.clock.note(&ev)
		h.changes = append(h.changes, ev)
	}, answered)
	h.clock.sort()
	return h, err
}

// oldestKnown is a transaction after which everything is known, within a factor
// of two of the oldest; 0 if there is none.
func oldestKnown(ctx context.Context, c *client.Client, lock string, now client.Zxid, answered func()) (client.Zxid, error) {
	for back := historySpan; back > 0; back /= 2 {
		since := client.Zxid(1)
		if back < now {
			since = now - back
		}
		known := true
		err := watchFor(ctx, c, lock, since, func(ev client.Event) bool {
			known = ev.Type != client.EventResync
			return false
		})
		if err != nil {
			return 0, err
		}
		answered()
		if known {
			return since, nil
		}
	}
	return 0, nil
}

// replay hands on what has changed at root and below, up to a transaction.
func replay(ctx context.Context, c *client.Client, root string, since, to client.Zxid, f func(client.Event), answered func()) error {
	return watchFor(ctx, c, root, since, func(ev client.Event) bool {
		answered()
		if ev.Type != client.EventResync && ev.Zxid <= to {
			f(ev)
		}
		return ev.Zxid < to
	})
}

// watchFor hands on changes until f returns false, or none comes for a while.
func watchFor(ctx context.Context, c *client.Client, root string, since client.Zxid, f func(client.Event) bool) error {
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(historyIdle, cancel)
	defer timer.Stop()
	for ev, err := range c.Watch(own, root, client.Recursive(), client.Since(since)) {
		if err != nil && own.Err() != nil && ctx.Err() == nil {
			return nil
		}
		if err != nil || !f(ev) {
			return err
		}
		timer.Reset(historyIdle)
	}
	return ctx.Err()
}

// isContender says whether a path is that of a place in the line of a lock, or of
// a slot.
func isContender(lock, p string) bool {
	dir, name := path.Split(p)
	return dir == lock+"/" && lockEntry.MatchString(name) || slotEntry.MatchString(p) && strings.HasPrefix(p, lock+"/slots/")
}
