package main

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
)

const (
	// completionLimit is how long a person waits after pressing Tab.
	completionLimit = 500 * time.Millisecond
	// maxCompletions bounds what is offered: nobody reads more.
	maxCompletions = 500
)

// completePath offers the children of the node that is being typed. It is
// silent about every failure: a shell has nowhere to show it.
func (e *env) completePath(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault // DATA: @FILE
	}
	if typed == "" {
		return []string{"/"}, directive
	}
	if err := e.checkFlags(cmd.Root().PersistentFlags(), cmd.Flags()); err != nil {
		return nil, directive
	}
	e.quiet, e.timeout = true, min(e.timeout, completionLimit)
	i := strings.LastIndex(typed, "/")
	if i < 0 {
		return nil, directive
	}
	parent := path.Clean(typed[:i+1])
	var out []string
	_ = e.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
		names, err := c.Children(ctx, parent, client.Mode(client.ReadSession))
		for _, name := range names {
			if full := path.Join(parent, name); strings.HasPrefix(full, typed) && len(out) < maxCompletions {
				out = append(out, full)
			}
		}
		return err
	})
	return out, directive
}
