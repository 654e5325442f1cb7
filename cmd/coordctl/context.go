package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/internal/buildinfo"
	"github.com/coordd/coord/internal/contexts"
)

func newContextCmd(e *env) *cobra.Command {
	return parent("context", "Keep named clusters, so that commands need no flags",
		newContextAddCmd(e), newContextUseCmd(e), newContextLsCmd(e), newContextShowCmd(e), newContextRmCmd(e))
}

// updateContexts changes the stored contexts.
func updateContexts(change func(*contexts.File) error) error {
	path, err := contexts.Path()
	if err != nil {
		return err
	}
	return contexts.Update(path, change)
}

func loadContexts() (*contexts.File, error) {
	path, err := contexts.Path()
	if err != nil {
		return nil, err
	}
	return contexts.Load(path)
}

// namedContext fails with exit code 3 for a name that is not there.
func namedContext(f *contexts.File, name string) (contexts.Context, error) {
	c, ok := f.Contexts[name]
	if !ok {
		return c, &codedError{exitNotFound, fmt.Errorf("no context %q", name)}
	}
	return c, nil
}

func newContextAddCmd(e *env) *cobra.Command {
	var protected, replace bool
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a context, made of the global flags",
		Example: "  coordctl context add prod -e n1:7420,n2:7420,n3:7420 --cacert ca.pem --protected\n" +
			"  coordctl context use prod",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(e.endpoints) == 0 {
				return usagef("context add needs --endpoints")
			}
			return updateContexts(func(f *contexts.File) error {
				if old, exists := f.Contexts[args[0]]; exists && !replace && !e.yes {
					return &codedError{exitPrecondition, fmt.Errorf("context add: %q exists, with the endpoints %s\nhint: --replace (or --yes) puts this one in its place",
						args[0], strings.Join(old.Endpoints, ","))}
				}
				f.Set(args[0], contexts.Context{
					Endpoints: e.endpoints, CACert: e.cacert, Cert: e.cert, Key: e.key,
					ServerName: e.serverName, AuthFile: e.authFile, Protected: protected,
				})
				if f.Current == "" {
					f.Current = args[0]
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&replace, "replace", false, "put it in the place of one of that name")
	cmd.Flags().BoolVar(&protected, "protected", false, "ask for typed confirmation before anything is destroyed")
	return cmd
}

func newContextUseCmd(*env) *cobra.Command {
	return &cobra.Command{
		Use:               "use NAME",
		Short:             "Make a context the one that is used",
		Example:           "  coordctl context use prod",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeContext,
		RunE: func(_ *cobra.Command, args []string) error {
			return updateContexts(func(f *contexts.File) error {
				if _, err := namedContext(f, args[0]); err != nil {
					return err
				}
				f.Current = args[0]
				return nil
			})
		},
	}
}

func newContextRmCmd(*env) *cobra.Command {
	return &cobra.Command{
		Use:               "rm NAME",
		Short:             "Forget a context",
		Example:           "  coordctl context rm staging",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeContext,
		RunE: func(_ *cobra.Command, args []string) error {
			return updateContexts(func(f *contexts.File) error {
				if _, err := namedContext(f, args[0]); err != nil {
					return err
				}
				delete(f.Contexts, args[0])
				if f.Current == args[0] {
					f.Current = ""
				}
				return nil
			})
		},
	}
}

// completeContext offers the names of the contexts.
func completeContext(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	f, err := loadContexts()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(f.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

// contextItem is how a context is shown to scripts.
type contextItem struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	contexts.Context
}

func newContextLsCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List the contexts",
		Example: "  coordctl context ls",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			f, err := loadContexts()
			if err != nil {
				return err
			}
			l := e.newLister("Context", []string{"CONTEXT", "CURRENT", "ENDPOINTS", "PROTECTED"}, nil)
			for _, name := range slices.Sorted(maps.Keys(f.Contexts)) {
				c := f.Contexts[name]
				err := l.add(contextItem{name, name == f.Current, c}, name, yesNo(name == f.Current), strings.Join(c.Endpoints, ","), yesNo(c.Protected))
				if err != nil {
					return err
				}
			}
			return l.close()
		},
	}
}

func newContextShowCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:               "show [NAME]",
		Short:             "Show one context, by default the one in use",
		Example:           "  coordctl context show\n  coordctl context show prod",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeContext,
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := loadContexts()
			if err != nil {
				return err
			}
			name := f.Current
			if len(args) == 1 {
				name = args[0]
			}
			if name == "" {
				return &codedError{exitNotFound, errors.New("no context is in use\nhint: coordctl context use NAME")}
			}
			c, err := namedContext(f, name)
			if err != nil {
				return err
			}
			return e.object("Context", contextItem{name, name == f.Current, c}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s\n  endpoints   %s\n  cacert      %s\n  cert        %s\n  key         %s\n  auth file   %s\n  protected   %s\n",
					name, strings.Join(c.Endpoints, ","), dash(c.CACert), dash(c.Cert), dash(c.Key), dash(c.AuthFile), yesNo(c.Protected))
				return err
			})
		},
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func newVersionCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  coordctl version --json | jq -r .version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return e.object("Version", map[string]string{"version": buildinfo.Version, "revision": buildinfo.Revision()}, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, buildinfo.Line("coordctl"))
				return err
			})
		},
	}
}
