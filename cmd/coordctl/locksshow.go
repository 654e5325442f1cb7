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
		Use:   "show PATH",
		Short: "Show the holders of one lock, and the waiting line",
		Long: `Show who holds the lock at PATH, of whatever kind it is, and who waits for it, in
the order of the line.

The session says who it is, and is never given twice. The token says which
acquisition is newer: that of a later holder is larger. Give a resource the token.`,
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
	var circles circles
	err := e.withMany(ctx, func(ctx context.Context, c *client.Client, answered func()) error {
		var err error
		if item, err = e.lookAtLock(ctx, c, p, sessions, answered); err != nil || item.Holder == nil {
			return err
		}
		item.Deadlocks, err = circles.at(ctx, c, item)
		if err != nil || len(item.Holders) > 1 {
			return err
		}
		answered()
		item.Together, err = takenTogether(ctx, c, item.Holder)
		return err
	})
	if err != nil {
		return as("locks show", err)
	}
	for _, w := range append(circles.warnings, item.Warnings...) {
		e.warn("WARNING: %s: %s", p, w)
	}
	return e.object("Lock", item, func(w io.Writer) error { return e.printLock(w, item) })
}

// lookAtLock reads one lock. That there is no znode at its path is an error.
func (e *env) lookAtLock(ctx context.Context, c *client.Client, p string, sessions map[string]*sessionItem, answered func()) (*lockItem, error) {
	info, err := lock.Inspect(ctx, c, p)
	if err != nil {
		return nil, err
	}
	answered()
	item := newLockItem(&info, sessions)
	if item.Holder != nil {
		return item, nil
	}
	_, ok, err := c.Exists(ctx, p)
	if err == nil && !ok {
		err = fmt.Errorf("%w %s: nobody holds it or waits for it", errNoLock, p)
	}
	return item, err
}

// takenTogether returns the other locks that the holder has taken in the same
// transaction: those of a lock.Multi.
func takenTogether(ctx context.Context, c *client.Client, h *party) ([]string, error) {
	if h.id == 0 || h.Role != "" || h.Slot != nil {
		return nil, nil
	}
	nodes, err := c.EphemeralsOf(ctx, h.id, "/")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, node := range nodes {
		if node == h.Node || len(out) >= maxTogether {
			continue
		}
		n := client.Node{Path: node}
		st, ok, err := c.Exists(ctx, node)
		if err != nil {
			return nil, err
		}
		n.Stat = st
		if path, isLock := lockOf(&n); ok && isLock && strconv.FormatInt(int64(st.Czxid), 10) == h.Token {
			out = append(out, path)
		}
	}
	return out, nil
}

// maxTogether bounds how many locks are named.
const maxTogether = 100

func (e *env) printLock(w io.Writer, i *lockItem) error {
	if i.Holder == nil {
		_, err := fmt.Fprintf(w, "%s    free\n", oneLine(i.Path))
		return err
	}
	fmt.Fprintf(w, "%s    %s, fair\n", oneLine(i.Path), i.title())
	var err error
	if len(i.Holders) == 1 {
		printHolder(w, i)
	} else {
		err = e.printHolders(i)
	}
	if err == nil && len(i.Waiters) > 0 {
		err = e.printWaiters(i)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, i.verdict())
	return err
}

func (i *lockItem) title() string {
	if i.Type == string(lock.KindSemaphore) {
		return fmt.Sprintf("semaphore, %d of %d slots taken", len(i.Holders), i.Limit)
	}
	return i.Type
}

func printHolder(w io.Writer, i *lockItem) {
	h := i.Holder
	fmt.Fprintf(w, "HOLDER   %s   ", oneLine(h.name()))
	if what := h.holding(); what != "" {
		fmt.Fprintf(w, "%s   ", what)
	}
	fmt.Fprintf(w, "token %s   held %s\n", dash(h.Token), ago(h.age))
	fmt.Fprintf(w, "         session %s %s\n", dash(h.Session), h.sessionText())
	if len(h.Labels) > 0 {
		fmt.Fprintf(w, "         labels %s\n", oneLine(labelText(h.Labels)))
	}
	for _, other := range i.Together {
		fmt.Fprintf(w, "         together with %s\n", oneLine(other))
	}
}

// holding is what of the lock a holder has, "" for all of it.
func (p *party) holding() string {
	if p.Slot != nil {
		return "slot " + strconv.Itoa(*p.Slot)
	}
	return p.Role
}

func (e *env) printHolders(i *lockItem) error {
	t := table{header: []string{"HAS", "HOLDER", "TOKEN", "HELD", "SESSION", "ADDRESS", "LAST HEARD", "STATE"}, wide: []string{"LABELS", "ZNODE"}}
	for n := range i.Holders {
		p := &i.Holders[n]
		t.rows = append(t.rows, []string{
			p.holding(), p.name(), dash(p.Token), ago(p.age), dash(p.Session), dash(p.Address), p.heard(), p.liveness(),
			dash(labelText(p.Labels)), p.Node,
		})
	}
	return e.printTable(t)
}

func (e *env) printWaiters(i *lockItem) error {
	t := table{header: []string{"  #", "WAITER", "WAITING", "SESSION", "ADDRESS", "LAST HEARD"}, wide: []string{"TOKEN", "ZNODE"}}
	if i.Type == string(lock.KindRW) {
		t.header[1] = "WAITER (FOR)"
	}
	for n := range i.Waiters {
		p := &i.Waiters[n]
		name := p.name()
		if p.Role != "" {
			name += " (" + p.Role + ")"
		}
		t.rows = append(t.rows, []string{
			fmt.Sprintf("%3d", n+1), name, ago(p.age), dash(p.Session), dash(p.Address), p.heard(), dash(p.Token), p.Node,
		})
	}
	return e.printTable(t)
}

// sessionText is what is known of the holder's session.
func (p *party) sessionText() string {
	switch p.Liveness {
	case "unknown":
		return "(not known)"
	case "gone":
		return "(it has ended)"
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
	if len(i.Deadlocks) > 0 {
		return "This does not end by itself: sessions wait for each other in a circle. It breaks when one of them gives up,\n" +
			"or when one of the locks is taken away: coordctl locks release --help"
	}
	h, who := i.worst(), "The holder"
	if len(i.Holders) > 1 {
		who = "One of the holders"
	}
	switch h.Liveness {
	case "silent":
		left := time.Duration(h.TimeoutMs-h.LastHeardMs) * time.Millisecond
		return fmt.Sprintf("%s has gone silent. Unless it is heard again, its session ends in about %s and the lock goes on.", who, ago(left))
	case "gone":
		return fmt.Sprintf("%s is gone, its session has ended. Its lock-delay keeps the lock for %s more;\n"+
			"coordctl locks release ends that at once.", who, ago(max(0, h.lingers)))
	case "ok":
		if len(i.Holders) > 1 {
			return "All holders are alive."
		}
		return "The holder is alive. If it takes long it is busy or stuck, not gone; its own process can tell more."
	default:
		return "Whether " + map[bool]string{false: "the holder is", true: "all holders are"}[len(i.Holders) > 1] + " alive is not known."
	}
}
