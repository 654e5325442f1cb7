package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
)

// nodeWithData is what `get` prints for scripts.
type nodeWithData struct {
	Path string `json:"path"`
	payload
	Zxid  string    `json:"zxid"`
	Stat  *statItem `json:"stat"`
	Stale bool      `json:"stale,omitempty"`
	AgeMs int64     `json:"ageMs,omitempty"` // stale: since the server last knew to be current
}

func newGetCmd(e *env) *cobra.Command {
	var withStat bool
	cmd := &cobra.Command{
		Use:   "get PATH",
		Short: "Print the data of a znode",
		Long: `Print the data of a znode and nothing else. On a terminal a newline is added;
elsewhere, and with --output raw, the bytes are the data's own.`,
		Example: "  coordctl get /app/config\n" +
			"  coordctl get --stat /app/config\n" +
			"  coordctl get /app/config --json | jq -r .stat.version",
		Args:              withPath(cobra.ExactArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				n, err := c.Get(ctx, args[0])
				if err != nil {
					return err
				}
				e.noteStale(&n)
				item := nodeWithData{
					Path: n.Path, payload: newPayload(n.Data), Zxid: n.Zxid.String(), Stat: newStatItem(&n.Stat),
					Stale: n.Stale, AgeMs: n.Age.Milliseconds(),
				}
				return e.object("Node", item, func(w io.Writer) error { return e.printData(w, &n, withStat) })
			})
		},
	}
	cmd.Flags().BoolVar(&withStat, "stat", false, "print the Stat behind the data")
	return cmd
}

func (e *env) printData(w io.Writer, n *client.Node, withStat bool) error {
	if _, err := w.Write(n.Data); err != nil {
		return err
	}
	newline := withStat || e.width() > 0 && e.output != "raw"
	if newline && len(n.Data) > 0 && n.Data[len(n.Data)-1] != '\n' {
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
	}
	if !withStat {
		return nil
	}
	return printStat(w, &n.Stat)
}

// noteStale says what --stale may mean for the answer.
func (e *env) noteStale(n *client.Node) {
	if n.Stale && !e.isJSON() {
		e.note("this may be out of date: the server last knew to be current %s ago", ago(n.Age))
	}
}

func newStatCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:               "stat PATH",
		Short:             "Print what the cluster knows about a znode beside its data",
		Example:           "  coordctl stat /app/config\n  coordctl stat /app/config --json | jq -r .stat.mtime",
		Args:              withPath(cobra.ExactArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				st, ok, err := c.Exists(ctx, args[0])
				if err == nil && !ok {
					err = &client.Error{Op: "stat", Path: args[0], Err: client.ErrNoNode, Index: -1}
				}
				if err != nil {
					return err
				}
				return e.object("Node", nodeItem{Path: args[0], Stat: newStatItem(&st)}, func(w io.Writer) error {
					return printStat(w, &st)
				})
			})
		},
	}
}

func newSyncCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "sync",
		Short: "Wait until the server has caught up, and print its zxid",
		Long: `Wait until the server that is asked has applied every write that was acknowledged
anywhere before, and print the zxid up to which it has.`,
		Example: "  coordctl -e n3:7420 sync && coordctl -e n3:7420 --stale get /app/config",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				z, err := c.Sync(ctx)
				if err != nil {
					return err
				}
				return e.object("Sync", map[string]string{"zxid": z.String()}, func(w io.Writer) error {
					_, err := io.WriteString(w, z.String()+"\n")
					return err
				})
			})
		},
	}
}
