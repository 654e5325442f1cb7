package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

func newLocksReleaseCmd(e *env) *cobra.Command {
	var node string
	cmd := &cobra.Command{
		Use:   "release PATH",
		Short: "Take a lock away from its holder",
		Long: `Take a lock away from its holder, by deleting the holder's znode: that very one,
so a holder that came meanwhile is left alone (exit code 4).

This does not stop the holder's process. It is told at once, if it listens and the
cluster can reach it; code that ignores that goes on, and then works beside the next
holder. Only a resource that checks fencing tokens refuses it from then on.

Of a lock with several holders --holder says which one: the znode, as
'coordctl locks show -o wide' names it.

It asks for the path to be typed. Without a terminal it refuses, unless --yes is
given.`,
		Example: "  coordctl locks release /locks/nightly-report\n" +
			"  coordctl locks release /locks/encoder --holder /locks/encoder/slots/2",
		Args:              withPath(cobra.ExactArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return as("locks release", e.releaseLock(cmd.Context(), args[0], node))
		},
	}
	cmd.Flags().StringVar(&node, "holder", "", "znode of the holder, of a lock that several hold")
	return cmd
}

// lockRelease is what release prints for scripts.
type lockRelease struct {
	Path   string `json:"path"`
	Holder party  `json:"holder"`
	// Next is who gets it, as far as could be seen; null if nobody waits.
	Next *party `json:"next"`
}

func (e *env) releaseLock(ctx context.Context, p, node string) error {
	sessions := e.sessionsByID(ctx)
	var item *lockItem
	var h *party
	var stat client.Stat
	err := e.withMany(ctx, func(ctx context.Context, c *client.Client, answered func()) error {
		var err error
		if item, err = e.lookAtLock(ctx, c, p, sessions, answered); err != nil {
			return err
		}
		if h, err = item.theHolder(node); err != nil {
			return err
		}
		var ok bool
		if stat, ok, err = c.Exists(ctx, h.Node); err == nil && !ok {
			err = letGo(p, h)
		}
		return err
	})
	if err != nil {
		return err
	}
	t, err := e.resolve()
	if err != nil {
		return err
	}
	if err := e.confirm("locks release", item.releaseQuestion(h), p, t.Protected); err != nil {
		return err
	}
	err = e.with(ctx, func(ctx context.Context, c *client.Client) error {
		_, err := c.Txn(repeatable(ctx), client.OpDeleteNode(h.Node, stat.Czxid, stat.EphemeralOwner))
		if errors.Is(err, client.ErrNoNode) || errors.Is(err, client.ErrBadVersion) {
			err = letGo(p, h)
		}
		return err
	})
	if err != nil {
		return err
	}
	return e.object("LockRelease", lockRelease{p, *h, item.next()}, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "released %s, held by %s with token %s\n", oneLine(p), oneLine(h.name()), dash(h.Token))
		return err
	})
}

// letGo says that the holder is none any more.
func letGo(p string, h *party) error {
	return &codedError{exitPrecondition, fmt.Errorf("locks release %s: %s has let it go meanwhile; nothing was done", p, oneLine(h.name()))}
}

// theHolder is the one that is meant.
func (i *lockItem) theHolder(node string) (*party, error) {
	var nodes []string
	for n := range i.Holders {
		h := &i.Holders[n]
		if h.Node == node || node == "" && len(i.Holders) == 1 {
			return h, nil
		}
		nodes = append(nodes, fmt.Sprintf("%s (%s)", h.Node, oneLine(h.name())))
	}
	switch {
	case len(nodes) == 0:
		return nil, fmt.Errorf("%w %s: nobody holds it", errNoLock, i.Path)
	case node != "":
		return nil, fmt.Errorf("%w %s: %s does not hold it", errNoLock, i.Path, node)
	default:
		return nil, usagef("locks release %s: %d hold it; --holder says which:\n  %s", i.Path, len(nodes), strings.Join(nodes, "\n  "))
	}
}

// releaseQuestion is what has to be known before a lock is taken away.
func (i *lockItem) releaseQuestion(h *party) string {
	name := oneLine(h.name())
	var s string
	switch h.Liveness {
	case "ok":
		s = "The holder " + name + " is alive"
		if h.LastHeardMs >= 0 {
			s += " (heard " + h.heard() + " ago)"
		}
		s += "."
	case "silent":
		s = "The holder " + name + " has gone silent (heard " + h.heard() + " ago); its session ends by itself, if it stays so."
	case "gone":
		s = "The holder " + name + " is gone; its lock-delay keeps the lock from others while its last requests may be under way."
	default:
		s = "Whether the holder " + name + " is alive is not known."
	}
	if h.Liveness != "gone" {
		s += " Releasing does not stop its process: it will be told, but\ncode that ignores that goes on."
	}
	if h.Token != "" {
		s += " Token " + h.Token + " is refused only by resources that check tokens."
	}
	if next := i.next(); next != nil {
		return s + "\nNext holder: " + oneLine(next.name()) + "."
	}
	return s + "\nNobody waits for it."
}

// next is who gets the lock, nil if nobody waits, or if other readers hold it
// still.
func (i *lockItem) next() *party {
	if len(i.Waiters) == 0 || i.Type == string(lock.KindRW) && len(i.Holders) > 1 {
		return nil
	}
	return &i.Waiters[0]
}
