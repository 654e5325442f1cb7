package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

type watchOptions struct {
	recursive, children, data, initial bool
	since                              string
	exec                               string
	count                              int
	limit                              time.Duration
}

func newWatchCmd(e *env) *cobra.Command {
	var o watchOptions
	cmd := &cobra.Command{
		Use:   "watch PATH",
		Short: "Print the changes of a znode as they happen",
		Long: `Print the changes of a znode, or with -r of everything below it too, as they
happen: in the order of the cluster, each once, also across servers and restarts.
It runs until Ctrl-C, or as --count and --for say.

With --since it begins behind that zxid. Where the servers no longer know all
changes since then, "resync" is printed: read the state anew.

With --exec a shell runs CMD for each change, one at a time. It finds COORD_EVENT,
COORD_PATH and COORD_ZXID in its environment and the data on its standard input.
While it runs, later changes of one path become one. A failing CMD is reported, and
makes the exit code 1.`,
		Example: "  coordctl watch -r /app\n" +
			"  coordctl watch -r /app --json --since 0x2a00001f3c --data | jq -r .path\n" +
			"  coordctl watch /app/config --exec 'nginx -s reload' --initial",
		Args:              withPath(cobra.ExactArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := o.check()
			if err != nil {
				return err
			}
			return e.watch(cmd.Context(), &o, args[0], opts)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.recursive, "recursive", "r", false, "the node and everything below it")
	f.BoolVar(&o.children, "children", false, "also when a child comes or goes")
	f.BoolVar(&o.data, "data", false, "with the data after each change")
	f.BoolVar(&o.initial, "initial", false, "begin with the present state")
	f.StringVar(&o.since, "since", "", "begin with the changes after this zxid")
	f.StringVar(&o.exec, "exec", "", "run this for each change")
	f.IntVar(&o.count, "count", 0, "end after so many changes (0: never)")
	f.DurationVar(&o.limit, "for", 0, "end after this long (0: never); exit code 7 if --count was not reached, 6 if no quorum was")
	return cmd
}

func (o *watchOptions) check() ([]client.WatchOption, error) {
	var opts []client.WatchOption
	switch {
	case o.recursive && o.children:
		return nil, usagef("--recursive has all that --children adds")
	case o.count < 0 || o.limit < 0:
		return nil, usagef("--count and --for must not be negative")
	case o.recursive:
		opts = append(opts, client.Recursive())
	case o.children:
		opts = append(opts, client.NodeAndChildren())
	}
	if o.data || o.exec != "" {
		opts = append(opts, client.WithData())
	}
	if o.initial {
		opts = append(opts, client.Initial(client.ReadDefault))
	}
	if o.since != "" {
		z, err := zxid.Parse(o.since)
		if err != nil {
			return nil, usagef("--since: %w", err)
		}
		opts = append(opts, client.Since(z))
	}
	return opts, nil
}

// errWatched ends a watch that has lasted as long as --for says.
var errWatched = errors.New("watched as long as asked")

func (e *env) watch(ctx context.Context, o *watchOptions, path string, opts []client.WatchOption) error {
	c, err := e.dial(ctx)
	if err != nil {
		return err
	}
	defer closeQuietly(c)
	whole := ctx
	ctx, cancel := o.within(ctx)
	defer cancel()
	reach := newReach(ctx, c)
	var handler *handler
	if o.exec != "" {
		handler = newHandler(ctx, e, o.exec)
	}
	seen, err := e.printEvents(ctx, o, c.Watch(ctx, path, opts...), handler)
	if handler != nil {
		err = errors.Join(err, handler.close())
	}
	cancel()
	if seen == 0 {
		if why := reach.failed(whole, e, ctx, path); why != nil {
			return why
		}
	}
	return err
}

// within bounds a watch by --for.
func (o *watchOptions) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.limit > 0 {
		return context.WithTimeoutCause(ctx, o.limit, errWatched)
	}
	return context.WithCancel(ctx)
}

// printEvents returns how many events it has printed.
func (e *env) printEvents(ctx context.Context, o *watchOptions, events func(func(client.Event, error) bool), h *handler) (seen int, err error) {
	for ev, err := range events {
		if err != nil {
			return seen, o.ended(ctx, err, seen)
		}
		if err := e.printEvent(o, &ev); err != nil {
			return seen, err
		}
		if h != nil {
			h.handle(ev)
		}
		if seen++; seen == o.count {
			return seen, nil
		}
	}
	return seen, nil
}

// ended tells the ends that were asked for from failures.
func (o *watchOptions) ended(ctx context.Context, err error, seen int) error {
	if !errors.Is(context.Cause(ctx), errWatched) {
		return err
	}
	if seen < o.count {
		return &codedError{exitTimeout, fmt.Errorf("watch: %d of %d changes within %s", seen, o.count, o.limit)}
	}
	return nil
}

// eventItem is an event as scripts see it.
type eventItem struct {
	Type    string `json:"type"`
	Path    string `json:"path"`
	Zxid    string `json:"zxid"`
	Index   uint32 `json:"index"`
	Last    bool   `json:"last"`
	Cause   string `json:"cause,omitempty"`
	Session string `json:"session,omitempty"` // that made the change
	// Stat is that after the change, before it if the node was deleted.
	Stat *statItem `json:"stat,omitempty"`
	*payload
	DataDropped bool `json:"dataDropped,omitempty"`
}

var causeNames = map[client.Cause]string{
	znode.ByRequest:       "request",
	znode.BySessionClose:  "session closed",
	znode.BySessionExpiry: "session expired",
	znode.ByReaper:        "past its time",
	znode.ByAdmin:         "administrator",
}

func (e *env) printEvent(o *watchOptions, ev *client.Event) error {
	if !e.isJSON() {
		_, err := fmt.Fprintf(e.stdout, "%s  %-12s  %-8s  %s%s\n",
			time.Now().Format("15:04:05.000"), ev.Zxid, ev.Type, oneLine(ev.Path), eventDetail(o, ev))
		return err
	}
	item := eventItem{
		Type: ev.Type.String(), Path: ev.Path, Zxid: ev.Zxid.String(), Index: ev.Index, Last: ev.Last,
		DataDropped: ev.DataDropped,
	}
	if ev.Stat.Czxid != 0 {
		item.Stat = newStatItem(&ev.Stat)
	}
	if isChange(ev) {
		item.Cause = causeNames[ev.Cause]
	}
	if ev.Session != 0 {
		item.Session = ev.Session.String()
	}
	if o.data && hasData(ev) {
		p := newPayload(ev.Data)
		item.payload = &p
	}
	return e.line("Event", item)
}

// isChange tells changes from marks, which nobody has caused.
func isChange(ev *client.Event) bool {
	return ev.Type != client.EventPresent && ev.Type != client.EventAbsent && ev.Type != client.EventResync
}

// hasData says whether the event's data is that of the node after it.
func hasData(ev *client.Event) bool {
	switch ev.Type {
	case client.EventCreated, client.EventChanged, client.EventPresent:
		return !ev.DataDropped
	default:
		return false
	}
}

// eventDetail is what a person wants to know beside type and path.
func eventDetail(o *watchOptions, ev *client.Event) string {
	var s string
	switch ev.Type {
	case client.EventChanged, client.EventPresent:
		s = fmt.Sprintf("  v%d  %s", ev.Stat.Version, size(int64(ev.Stat.DataLength)))
	case client.EventCreated:
		s = "  " + kindOf(&ev.Stat)
		if ev.Stat.EphemeralOwner != 0 {
			s += ", session " + ev.Stat.EphemeralOwner.String()
		}
	case client.EventDeleted:
		if ev.Cause != znode.ByRequest {
			s = "  " + causeNames[ev.Cause]
		}
	case client.EventResync:
		s = "  changes may have been missed: read the state anew"
	default:
	}
	if o.data && hasData(ev) {
		s += "  " + quoted(ev.Data)
	}
	return s
}

// quoted is data on one line.
func quoted(data []byte) string {
	if data == nil {
		return "null"
	}
	p := newPayload(data)
	if p.Encoding == "base64" {
		return "base64:" + *p.Data
	}
	return fmt.Sprintf("%q", data)
}
