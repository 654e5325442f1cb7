package main

import (
	"bufio"
	"context"
	"path"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
)

type lsOptions struct{ recursive, long bool }

func newLsCmd(e *env) *cobra.Command {
	var o lsOptions
	cmd := &cobra.Command{
		Use:   "ls [PATH]",
		Short: "List the children of a znode",
		Long: `List the names of the children of a znode (default /), one a line, in ascending
order. With -R the paths of the node itself and all below it.`,
		Example: "  coordctl ls /app\n" +
			"  coordctl ls -l /app\n" +
			"  coordctl ls -R --json / | jq -r '.items[].path'",
		Args:              withPath(cobra.MaximumNArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := "/"
			if len(args) == 1 {
				root = args[0]
			}
			return as("ls", e.withMany(cmd.Context(), func(ctx context.Context, c *client.Client, answered func()) error {
				switch {
				case o.long:
					return e.lsLong(ctx, c, root, &o, answered)
				case o.recursive:
					return e.lsNames(visit(ctx, c, root, -1, answered), fullPath)
				default:
					return e.lsChildren(ctx, c, root)
				}
			}))
		},
	}
	cmd.Flags().BoolVarP(&o.recursive, "recursive", "R", false, "the node and everything below it")
	cmd.Flags().BoolVarP(&o.long, "long", "l", false, "with kind, version, size, children, age and owner")
	return cmd
}

func fullPath(n *client.Node) string { return n.Path }
func baseName(n *client.Node) string { return path.Base(n.Path) }

// lsChildren needs no more than the names.
func (e *env) lsChildren(ctx context.Context, c *client.Client, root string) error {
	names, err := c.Children(ctx, root)
	if err != nil {
		return err
	}
	return e.lsNames(func(yield func(client.Node, error) bool) {
		for _, name := range names {
			if !yield(client.Node{Path: path.Join(root, name)}, nil) {
				return
			}
		}
	}, baseName)
}

// lsNames prints one name a line, without a header.
func (e *env) lsNames(nodes func(func(client.Node, error) bool), text func(*client.Node) string) error {
	if e.isJSON() {
		l := e.newLister("Node", nil, nil)
		for n, err := range nodes {
			if err != nil {
				return err
			}
			if err := l.add(nodeItem{Path: n.Path, Name: baseName(&n)}); err != nil {
				return err
			}
		}
		return l.close()
	}
	w := bufio.NewWriter(e.stdout)
	for n, err := range nodes {
		if err != nil {
			_ = w.Flush() // what was read before; the error says that it is not all
			return err
		}
		if _, err := w.WriteString(text(&n) + "\n"); err != nil {
			return err
		}
	}
	return w.Flush()
}

func (e *env) lsLong(ctx context.Context, c *client.Client, root string, o *lsOptions, answered func()) error {
	nodes, text, first := children(ctx, c, root, answered), baseName, "NAME"
	if o.recursive {
		nodes, text, first = visit(ctx, c, root, -1, answered), fullPath, "PATH"
	}
	l := e.newLister("Node",
		[]string{first, "TYPE", "VERSION", "SIZE", "CHILDREN", "CHANGED", "OWNER"},
		[]string{"CTIME", "MTIME", "CZXID", "MZXID"})
	for n, err := range nodes {
		if err != nil {
			return err
		}
		s := &n.Stat
		item := nodeItem{Path: n.Path, Name: baseName(&n), Stat: newStatItem(s)}
		err := l.add(item, text(&n), kindOf(s), strconv.FormatInt(s.Version, 10), size(int64(s.DataLength)),
			strconv.Itoa(int(s.NumChildren)), since(s.Mtime), dash(item.Stat.EphemeralOwner),
			item.Stat.Ctime, item.Stat.Mtime, item.Stat.Czxid, item.Stat.Mzxid)
		if err != nil {
			return err
		}
	}
	return l.close()
}
