package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

func newLocksCmd(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "locks [PATH]",
		Short: "List the locks that are held",
		Long: `List the locks at PATH (default /) and below, mutexes, read-write locks and
semaphores: who holds them, with which fencing token, and who waits. It also knows
the locks of Curator, go-zookeeper and kazoo, by the names of their znodes, and
warns where such clients share one lock but do not see each other, and where
sessions wait for each other in a circle (a deadlock).

HELD counts from when the lock was granted, where that is written down: of
read-write locks, semaphores, and mutexes with a lock-delay or a wait limit. Else it
counts from when the holder joined the line, as OLDEST WAIT does. HOLDER says
whether the holders' sessions are alive: ok, SILENT, unknown; GONE for one that has
ended, whose lock-delay still keeps the lock.`,
		Example: "  coordctl locks\n" +
			"  coordctl locks show /locks/nightly-report\n" +
			"  coordctl locks check /locks/nightly-report --token 180388633090",
		Args:              withPath(cobra.MaximumNArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := "/"
			if len(args) == 1 {
				root = args[0]
			}
			return as("locks", e.listLocks(cmd.Context(), root))
		},
	}
	cmd.AddCommand(newLocksShowCmd(e), newLocksReleaseCmd(e), newLocksCheckCmd(e))
	return cmd
}

func (e *env) listLocks(ctx context.Context, root string) error {
	sessions := e.sessionsByID(ctx)
	l := e.newLister("Lock", []string{"LOCK", "KIND", "HELD BY", "TOKEN", "HELD", "WAITING", "OLDEST WAIT", "HOLDER"},
		[]string{"SESSION", "ADDRESS", "NODE"})
	var warnings []string
	err := e.withMany(ctx, func(ctx context.Context, c *client.Client, answered func()) error {
		locks, err := findLocks(ctx, c, root, answered)
		if err != nil {
			return err
		}
		var circles circles
		for _, p := range locks {
			info, err := lock.Inspect(ctx, c, p)
			if err != nil {
				return err
			}
			answered()
			if len(info.Holders)+len(info.Waiters) == 0 {
				continue // given back meanwhile
			}
			item := newLockItem(&info, sessions)
			if item.Deadlocks, err = circles.at(ctx, c, item); err != nil {
				return err
			}
			answered()
			for _, w := range item.Warnings {
				warnings = append(warnings, p+": "+w)
			}
			if err := l.add(item, item.row()...); err != nil {
				return err
			}
		}
		warnings = append(circles.warnings, warnings...)
		return l.close()
	})
	for _, w := range warnings {
		e.warn("WARNING: %s", w)
	}
	return err
}

// sessionsByID are the live sessions. Without the permission to see them the
// locks can still be shown, so the failure is only noted.
func (e *env) sessionsByID(ctx context.Context) map[string]*sessionItem {
	all, err := e.allSessions(ctx)
	if err != nil {
		if _, code := classify(err); code == exitNotPermitted {
			e.note("who the holders are is not shown: %v", err)
		}
		return nil
	}
	by := make(map[string]*sessionItem, len(all))
	for i := range all {
		by[all[i].ID] = &all[i]
	}
	return by
}
