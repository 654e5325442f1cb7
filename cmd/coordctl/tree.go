package main

import (
	"bufio"
	"context"
	"fmt"
	"iter"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
)

func newTreeCmd(e *env) *cobra.Command {
	levels := -1
	cmd := &cobra.Command{
		Use:   "tree [PATH]",
		Short: "Draw a znode and what is below it",
		Example: "  coordctl tree -L 2\n" +
			"  coordctl tree /app",
		Args:              withPath(cobra.MaximumNArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("levels") && levels < 1 {
				return usagef("--levels: %d is below 1", levels)
			}
			root := "/"
			if len(args) == 1 {
				root = args[0]
			}
			return as("tree", e.withMany(cmd.Context(), func(ctx context.Context, c *client.Client, answered func()) error {
				nodes := visit(ctx, c, root, levels, answered)
				if e.isJSON() {
					return e.printNodes(nodes)
				}
				return e.drawTree(root, levels, nodes)
			}))
		},
	}
	cmd.Flags().IntVarP(&levels, "levels", "L", -1, "how deep to go")
	return cmd
}

func (e *env) printNodes(nodes iter.Seq2[client.Node, error]) error {
	l := e.newLister("Node", nil, nil)
	for n, err := range nodes {
		if err != nil {
			return err
		}
		if err := l.add(nodeItem{Path: n.Path, Name: baseName(&n), Stat: newStatItem(&n.Stat)}); err != nil {
			return err
		}
	}
	return l.close()
}

// drawTree draws nodes as they come, parents before children. How many more
// siblings there are is known from the parent, so that nothing is kept but the
// way down to the present node; a change meanwhile can only bend a line.
func (e *env) drawTree(root string, levels int, nodes iter.Seq2[client.Node, error]) error {
	w := bufio.NewWriter(e.stdout)
	var left []int32 // children still to come, for each node on the way down
	for n, err := range nodes {
		if err != nil {
			_ = w.Flush() // what was read before; the error says that it is not all
			return err
		}
		depth := depthBelow(root, n.Path)
		left = append(left[:depth], n.Stat.NumChildren)
		if depth == 0 {
			fmt.Fprintln(w, oneLine(n.Path))
			continue
		}
		left[depth-1]--
		fmt.Fprintln(w, branch(left[:depth])+oneLine(path.Base(n.Path))+remark(&n.Stat, depth == levels))
	}
	return w.Flush()
}

// depthBelow counts the steps from root down to p.
func depthBelow(root, p string) int {
	rest := strings.Trim(strings.TrimPrefix(p, root), "/")
	if rest == "" {
		return 0
	}
	return strings.Count(rest, "/") + 1
}

func branch(left []int32) string {
	var b strings.Builder
	for _, more := range left[:len(left)-1] {
		if more > 0 {
			b.WriteString("│   ")
		} else {
			b.WriteString("    ")
		}
	}
	if left[len(left)-1] > 0 {
		b.WriteString("├── ")
	} else {
		b.WriteString("└── ")
	}
	return b.String()
}

// remark says what the drawing cannot show.
func remark(s *client.Stat, cut bool) string {
	var parts []string
	if s.DataLength > 0 {
		parts = append(parts, size(int64(s.DataLength)))
	}
	if s.Kind == client.Ephemeral {
		parts = append(parts, "ephemeral")
	}
	if cut && s.NumChildren == 1 {
		parts = append(parts, "1 child")
	} else if cut && s.NumChildren > 1 {
		parts = append(parts, fmt.Sprintf("%d children", s.NumChildren))
	}
	if len(parts) == 0 {
		return ""
	}
	return "  " + strings.Join(parts, ", ")
}
