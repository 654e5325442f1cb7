package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"

	"github.com/coordd/coord/client"
)

// maxWaiting is how many paths may wait for the handler. Behind that many,
// watching waits: the cluster keeps the changes.
const maxWaiting = 10_000

// handler runs a command for each event, one at a time. Of events of one path
// that come while it runs, the newest is handled.
type handler struct {
	*env
	ctx     context.Context
	command string
	done    chan struct{}

	mu      sync.Mutex
	changed *sync.Cond // on mu
	order   []string   // paths that wait, oldest first
	waiting map[string]client.Event
	closed  bool
	failed  error // the first
}

// newHandler starts the goroutine that runs the command until close.
func newHandler(ctx context.Context, e *env, command string) *handler {
	h := &handler{env: e, ctx: ctx, command: command, done: make(chan struct{}), waiting: map[string]client.Event{}}
	h.changed = sync.NewCond(&h.mu)
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.changed.Broadcast()
	})
	go h.loop()
	return h
}

// handle hands an event over. It waits while too many are waiting.
func (h *handler) handle(ev client.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.order) >= maxWaiting && h.ctx.Err() == nil {
		h.changed.Wait()
	}
	if _, ok := h.waiting[ev.Path]; !ok {
		h.order = append(h.order, ev.Path)
	}
	h.waiting[ev.Path] = ev
	h.changed.Broadcast()
}

// interrupted says whether the user has had enough; the end of --for is none.
func (h *handler) interrupted() bool {
	return h.ctx.Err() != nil && !errors.Is(context.Cause(h.ctx), errWatched)
}

// close waits until all events are handled, or at Ctrl-C the present one, and
// returns the first failure.
func (h *handler) close() error {
	h.mu.Lock()
	h.closed = true
	h.changed.Broadcast()
	h.mu.Unlock()
	<-h.done
	return h.failed
}

func (h *handler) loop() {
	defer close(h.done)
	for {
		ev, ok := h.next()
		if !ok {
			return
		}
		if err := h.run(&ev); err != nil {
			h.warn("--exec %q for %s %s: %v", h.command, ev.Type, ev.Path, err)
			if h.failed == nil {
				h.failed = &codedError{exitFailed, fmt.Errorf("--exec: a command failed: %w", err)}
			}
		}
	}
}

func (h *handler) next() (client.Event, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.order) == 0 && !h.closed && !h.interrupted() {
		h.changed.Wait()
	}
	if len(h.order) == 0 || h.interrupted() {
		return client.Event{}, false
	}
	path := h.order[0]
	h.order = h.order[1:]
	ev := h.waiting[path]
	delete(h.waiting, path)
	h.changed.Broadcast()
	return ev, true
}

func (h *handler) run(ev *client.Event) error {
	cmd := exec.Command("/bin/sh", "-c", h.command)
	cmd.Env = append(os.Environ(), "COORD_EVENT="+ev.Type.String(), "COORD_PATH="+ev.Path, "COORD_ZXID="+ev.Zxid.String())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(ev.Data), h.stdout, h.stderr
	return cmd.Run()
}
