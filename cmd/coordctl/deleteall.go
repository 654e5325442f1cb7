package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
)

// typedAbove is the number of znodes above which the path must be typed.
const typedAbove = 100

func newDeleteAllCmd(e *env) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "deleteall PATH",
		Short: "Delete a znode and everything below it",
		Long: `Delete a znode and everything below it.

It asks first: with y/N, or for the path to be typed when that is more than 100
znodes, one of a live session, a child of the root, or when the context is
protected. Without a terminal it refuses, unless --yes is given. / and /zookeeper
are never deleted.

Znodes that others create below PATH meanwhile are deleted too. Where they do so
faster than they can be deleted, it gives up and says what is left (exit code 4).`,
		Example: "  coordctl deleteall --dry-run /app/old\n" +
			"  coordctl deleteall --yes /app/old",
		Args:              withPath(cobra.ExactArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.deleteAll(cmd.Context(), args[0], dryRun)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only list what would be deleted")
	return cmd
}

// deleteResult is what deleteall prints for scripts.
type deleteResult struct {
	Path    string `json:"path"`
	Deleted int64  `json:"deleted"`
}

func (e *env) deleteAll(ctx context.Context, root string, dryRun bool) error {
	if root == "/" || root == "/zookeeper" || strings.HasPrefix(root, "/zookeeper/") {
		return usagef("deleteall %s: / and /zookeeper are never deleted", root)
	}
	if dryRun {
		return as("deleteall", e.withMany(ctx, func(ctx context.Context, c *client.Client, answered func()) error {
			return e.lsNames(visit(ctx, c, root, -1, answered), fullPath)
		}))
	}
	var s survey
	err := e.withMany(ctx, func(ctx context.Context, c *client.Client, answered func()) error {
		return s.look(ctx, c, root, answered)
	})
	if err != nil {
		return as("deleteall", err)
	}
	t, err := e.resolve()
	if err != nil {
		return err
	}
	want := ""
	if s.serious() || t.Protected {
		want = root
	}
	if err := e.confirm("deleteall", e.question(ctx, &s), want, t.Protected); err != nil {
		return err
	}
	c, err := e.dialWith(ctx)
	if err != nil {
		return err
	}
	d := &deleter{env: e, client: c, root: root}
	err = e.diagnose(ctx, d.run(ctx))
	if err = joinClose(err, c.Close()); err != nil {
		return err
	}
	return e.object("Deletion", deleteResult{root, d.deleted.Load()}, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "deleted %s\n", plural(int(d.deleted.Load()), "znode"))
		return err
	})
}

// joinClose keeps the error of the work; that of the close counts alone only.
func joinClose(err, closing error) error {
	if err != nil {
		return err
	}
	return closing
}

// survey is what stands at risk.
type survey struct {
	root   string
	znodes int64
	bytes  int64
	newest int64 // mtime, ms since 1970
	owners []client.SessionID
	// ephemerals is how many of the znodes belong to those sessions.
	ephemerals int64
}

// look reads the subtree page by page; of each znode nothing is kept.
func (s *survey) look(ctx context.Context, c *client.Client, root string, answered func()) error {
	s.root = root
	owners := map[client.SessionID]bool{}
	for n, err := range visit(ctx, c, root, -1, answered) {
		if err != nil {
			return err
		}
		s.znodes++
		s.bytes += int64(n.Stat.DataLength)
		s.newest = max(s.newest, n.Stat.Mtime)
		if o := n.Stat.EphemeralOwner; o != 0 {
			s.ephemerals++
			owners[o] = true
		}
	}
	for o := range owners {
		s.owners = append(s.owners, o)
	}
	slices.Sort(s.owners)
	return nil
}

// serious says whether y is too easy an answer.
func (s *survey) serious() bool {
	return s.znodes > typedAbove || s.ephemerals > 0 || strings.Count(s.root, "/") == 1
}

// maxOwnersNamed bounds a question: the rest is counted.
const maxOwnersNamed = 5

// question describes what is about to be deleted.
func (e *env) question(ctx context.Context, s *survey) string {
	q := fmt.Sprintf("%s and %s below it, %s, last changed %s ago", s.root, plural(int(s.znodes-1), "znode"), size(s.bytes), since(s.newest))
	if s.ephemerals > 0 {
		q += fmt.Sprintf("; %d are ephemeral znodes of live sessions\n(%s)", s.ephemerals, strings.Join(e.sessionNames(ctx, s.owners), ", "))
	}
	return q + ". This cannot be undone."
}

// sessionNames are the names of sessions, or their ids where names cannot be
// had: they only help to decide.
func (e *env) sessionNames(ctx context.Context, ids []client.SessionID) []string {
	named := map[string]string{}
	if all, err := e.allSessions(ctx); err == nil {
		for i := range all {
			named[all[i].ID] = all[i].Name
		}
	}
	var out []string
	for i, id := range ids {
		if i == maxOwnersNamed {
			return append(out, fmt.Sprintf("and %d more", len(ids)-i))
		}
		if name := named[id.String()]; name != "" {
			out = append(out, oneLine(name))
		} else {
			out = append(out, id.String())
		}
	}
	return out
}
