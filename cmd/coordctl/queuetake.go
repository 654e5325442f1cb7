package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/queue"
)

const (
	// noWaitLimit is how long a claim may take although nobody wants to wait: the
	// queue is read, and others may be before us.
	noWaitLimit = time.Second
	// takeKill is the time between SIGTERM and SIGKILL when a claim is lost. It is
	// lost a tenth of the session's timeout before another can have the item.
	takeKill = time.Second
)

// queueItem is an item as scripts see it.
type queueItem struct {
	ID         string `json:"id"`
	Key        string `json:"key,omitempty"`
	Priority   int    `json:"priority"`
	Deliveries int    `json:"deliveries"`
	Token      string `json:"token"`
	payload
}

func (e *env) queueTake(ctx context.Context, o *queueTakeOptions, path string, argv []string) error {
	program, err := findProgram(argv)
	if err != nil {
		return err
	}
	c, err := e.dialWith(ctx, client.WithSessionTimeout(o.sessionTimeout))
	if err != nil {
		return err
	}
	defer closeQuietly(c) // the claim ends with the session
	it, err := o.take(ctx, queue.New(c, path, queue.MaxDeliveries(o.maxDeliveries)))
	if err != nil {
		return o.nothing(path, err)
	}
	if program == "" {
		return e.giveOut(ctx, it)
	}
	code, err := e.work(ctx, it, program, argv)
	switch {
	case err != nil || code != exitOK:
		if back := it.Return(context.WithoutCancel(ctx), o.retryAfter); back != nil && !errors.Is(back, queue.ErrLost) {
			e.warn("%v", back)
		}
	default:
		err = it.Done(context.WithoutCancel(ctx))
	}
	if errors.Is(err, queue.ErrLost) {
		return &codedError{exitLost, err}
	}
	if err == nil && code != exitOK {
		return exitError(code)
	}
	return err
}

// take waits as long as the flags say.
func (o *queueTakeOptions) take(ctx context.Context, q *queue.Queue) (*queue.Item, error) {
	limit := o.wait
	if o.noWait {
		limit = noWaitLimit
	}
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return q.Take(ctx)
}

// nothing says that there was no item in time.
func (o *queueTakeOptions) nothing(path string, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) || o.wait == 0 && !o.noWait {
		return err
	}
	text := fmt.Sprintf("queue %s: no item within %s", path, o.wait)
	if o.noWait {
		text = fmt.Sprintf("queue %s: no item is free", path)
	}
	return &conflictError{text, exitNotAcquired, context.DeadlineExceeded}
}

// giveOut prints an item and takes it out.
func (e *env) giveOut(ctx context.Context, it *queue.Item) error {
	item := queueItem{it.ID, it.Key, it.Priority, it.Deliveries, it.Token.String(), newPayload(it.Data)}
	err := e.object("QueueItem", &item, func(w io.Writer) error {
		_, err := w.Write(it.Data)
		return err
	})
	if err != nil {
		return errors.Join(err, it.Return(context.WithoutCancel(ctx), 0))
	}
	return it.Done(context.WithoutCancel(ctx))
}

// work runs the command for an item, until it ends or the claim is lost.
func (e *env) work(ctx context.Context, it *queue.Item, program string, argv []string) (int, error) {
	cmd := exec.Command(program, argv[1:]...)
	cmd.Args[0] = argv[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(it.Data), e.stdout, e.stderr
	cmd.Env = append(os.Environ(), fence.EnvToken+"="+it.Token.String(), "COORD_QUEUE_ID="+it.ID, "COORD_QUEUE_KEY="+it.Key,
		"COORD_QUEUE_DELIVERIES="+strconv.Itoa(it.Deliveries))
	signals := make(chan os.Signal, 16) // more at once are dropped, as the kernel does
	signal.Notify(signals, unlessIgnored(forwarded...)...)
	defer signal.Stop(signals)
	if ctx.Err() != nil {
		return 0, errInterrupted
	}
	exited, err := startTied(cmd)
	if err != nil {
		return 0, &codedError{exitNotExecutable, err}
	}
	group := -cmd.Process.Pid
	for {
		select {
		case end := <-exited:
			return end.code(), nil
		case s := <-signals:
			_ = syscall.Kill(group, s.(syscall.Signal))
		case <-it.Context().Done():
			e.warn("%v", context.Cause(it.Context()))
			stop(group, exited)
			return exitLost, nil
		}
	}
}

// stop ends a process group.
func stop(group int, exited <-chan exit) {
	_ = syscall.Kill(group, syscall.SIGTERM)
	_ = syscall.Kill(group, syscall.SIGCONT)
	kill := time.NewTimer(takeKill)
	defer kill.Stop()
	select {
	case <-exited:
		_ = syscall.Kill(group, syscall.SIGKILL) // what it left behind
	case <-kill.C:
		_ = syscall.Kill(group, syscall.SIGKILL)
		<-exited
	}
}
