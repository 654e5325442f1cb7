package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

func newLocksShowCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:               "show PATH",
		Short:             "Show the holder of one lock, and the waiting line",
		Example:           "  coordctl locks show /locks/nightly-report",
		Args:              withPath(cobra.ExactArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.showLock(cmd.Context(), args[0])
		},
	}
}

func (e *env) showLock(ctx context.Context, p string) error {
	sessions := e.sessionsByID(ctx)
	var item *lockItem
	err := e.withMany(ctx, func(ctx context.Context, c *client.Client, answered func()) error {
		info, err := lock.New(c, p).Inspect(ctx)
		if err != nil {
			return err
		}
		answered()
		if item = newLockItem(&info, sessions); item.Holder != nil {
			return nil
		}
		_, ok, err := c.Exists(ctx, p)
		if err == nil && !ok {
			err = fmt.Errorf("%w %s: nobody holds it or waits for it", errNoLock, p)
		}
		return err
	})
	if err != nil {
		return as("locks show", err)
	}
	for _, w := range item.Warnings {
		e.warn("WARNING: %s: %s", p, w)
	}
	return e.object("Lock", item, func(w io.Writer) error { return e.printLock(w, item) })
}

func (e *env) printLock(w io.Writer, i *lockItem) error {
	if i.Holder == nil {
		_, err := fmt.Fprintf(w, "%s    free\n", oneLine(i.Path))
		return err
	}
	h := i.Holder
	fmt.Fprintf(w, "%s    %s, fair\n", oneLine(i.Path), i.Type)
	fmt.Fprintf(w, "HOLDER   %s   token %s   held %s\n", oneLine(h.name()), h.Token, ago(h.age))
	fmt.Fprintf(w, "         session %s %s\n", dash(h.Session), h.sessionText())
	if len(h.Labels) > 0 {
		fmt.Fprintf(w, "         labels %s\n", oneLine(labelText(h.Labels)))
	}
	t := table{header: []string{"  #", "WAITER", "WAITING", "SESSION", "ADDRESS", "LAST HEARD"}, wide: []string{"TOKEN", "ZNODE"}}
	for n := range i.Waiters {
		p := &i.Waiters[n]
		t.rows = append(t.rows, []string{
			fmt.Sprintf("%3d", n+1), p.name(), ago(p.age), dash(p.Session), dash(p.Address), p.heard(), p.Token, p.Node,
		})
	}
	if len(t.rows) > 0 {
		if err := e.printTable(t); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, i.verdict())
	return err
}

// sessionText is what is known of the holder's session.
func (p *party) sessionText() string {
	if p.Liveness == "unknown" {
		return "(not known)"
	}
	s := strconv.Quote(p.SessionName) + ", " + dash(p.Address) + " via " + dash(p.Server)
	if p.LastHeardMs >= 0 {
		s += fmt.Sprintf(", last heard %s ago", p.heard())
	}
	if p.LastHeardMs < 0 {
		s += ", timeout"
	} else {
		s += " of"
	}
	return s + " " + (time.Duration(p.TimeoutMs) * time.Millisecond).String()
}

// verdict is the sentence that the reader came for.
func (i *lockItem) verdict() string {
	h := i.Holder
	switch h.Liveness {
	case "silent":
		left := time.Duration(h.TimeoutMs-h.LastHeardMs) * time.Millisecond
		return fmt.Sprintf("The holder has gone silent. Unless it is heard again, its session ends in about %s and the lock goes on.", ago(left))
	case "ok":
		return "The holder is alive. If it takes long it is busy or stuck, not gone; its own process can tell more."
	default:
		return "Whether the holder is alive is not known."
	}
}
