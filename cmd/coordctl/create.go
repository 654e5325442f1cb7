package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/znode"
)

type createOptions struct {
	ephemeral, container, sequential, parents, hold bool
	ttl                                             time.Duration
	sessionTimeout                                  time.Duration
	acl                                             []string
}

func newCreateCmd(e *env) *cobra.Command {
	var o createOptions
	cmd := &cobra.Command{
		Use:   "create PATH [DATA|-|@FILE]",
		Short: "Create a znode and print its path",
		Long: `Create a znode and print its path, which differs from PATH with -s, and nothing
else.

Behind create, -e means ephemeral; in front of it -e names the endpoints.

An ephemeral znode (-e) belongs to a session of its own: coordctl leaves the
session to expire, or with --hold keeps it until Ctrl-C and then ends it.

` + dataHelp,
		Example: "  coordctl create /app/config 'workers: 4'\n" +
			"  coordctl create -s -e /queue/item- payload\n" +
			"  coordctl create -p /deep/down/here\n" +
			"  coordctl create -e --hold /members/me",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := o.check()
			if err != nil {
				return err
			}
			if err := o.checkPath(args[0]); err != nil {
				return err
			}
			data, err := e.data(args[1:])
			if err != nil {
				return err
			}
			if o.ephemeral {
				return e.createEphemeral(cmd.Context(), &o, args[0], data, opts)
			}
			return e.withMany(cmd.Context(), func(ctx context.Context, c *client.Client, answered func()) error {
				return e.create(ctx, c, &o, args[0], data, opts, answered)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.ephemeral, "ephemeral", "e", false, "gone when its session has ended")
	f.BoolVarP(&o.container, "container", "c", false, "deleted some time after its last child has gone")
	f.BoolVarP(&o.sequential, "sequential", "s", false, "put a rising number behind the name")
	f.BoolVarP(&o.parents, "parents", "p", false, "create missing parents, as persistent znodes")
	f.BoolVar(&o.hold, "hold", false, "with -e: keep the session until Ctrl-C")
	f.DurationVar(&o.ttl, "ttl", 0, "deleted when it has no children and was not set for this long")
	f.DurationVar(&o.sessionTimeout, "session-timeout", 0, "with -e: how long the znode outlives its session's last sign of life (default: the cluster's)")
	// Behind create -e is --ephemeral; endpoints keep their long name here.
	f.StringSliceVar(&e.endpoints, "endpoints", nil, "servers to use, as host:port,host:port (-e in front of create)")
	f.StringArrayVar(&o.acl, "acl", nil, "who may do what, as in `coordctl acl set --help` (repeatable)")
	return cmd
}

// check refuses flags that exclude each other, and says what kind of znode to
// create.
func (o *createOptions) check() ([]client.CreateOption, error) {
	var opts []client.CreateOption
	kinds := 0
	if o.ephemeral {
		kinds++
		opts = append(opts, client.WithEphemeral())
	}
	if o.container {
		kinds++
		opts = append(opts, client.WithContainer())
	}
	if o.ttl != 0 {
		kinds++
		opts = append(opts, client.WithTTL(o.ttl))
	}
	switch {
	case kinds > 1:
		return nil, usagef("--ephemeral, --container and --ttl exclude each other")
	case o.ttl < 0 || o.ttl%time.Millisecond != 0:
		return nil, usagef("--ttl: %s is not a whole number of milliseconds above zero", o.ttl)
	case (o.hold || o.sessionTimeout != 0) && !o.ephemeral:
		return nil, usagef("--hold and --session-timeout go with --ephemeral")
	}
	if o.sequential {
		opts = append(opts, client.WithSequential())
	}
	if len(o.acl) == 0 {
		return opts, nil
	}
	list, err := parseACL(o.acl)
	return append(opts, client.WithACL(list...)), err
}

// create makes the znode and prints its path.
func (e *env) create(ctx context.Context, c *client.Client, o *createOptions, p string, data []byte, opts []client.CreateOption, answered func()) error {
	made, err := c.Create(e.writing(ctx, o), p, data, opts...)
	if o.parents && errors.Is(err, client.ErrNoNode) {
		if err := makeParents(ctx, c, p, answered); err != nil {
			return err
		}
		answered()
		made, err = c.Create(e.writing(ctx, o), p, data, opts...)
	}
	if errors.Is(err, client.ErrNoNode) {
		return fmt.Errorf("%w\nhint: %s is missing; -p creates missing parents", err, path.Dir(p))
	}
	if err != nil {
		return err
	}
	return e.object("Node", nodeItem{Path: made.Path, Stat: newStatItem(&made.Stat)}, func(w io.Writer) error {
		_, err := io.WriteString(w, made.Path+"\n")
		return err
	})
}

// writing makes a create repeatable. One that belongs to a session is that
// already, by the session's numbers.
func (e *env) writing(ctx context.Context, o *createOptions) context.Context {
	if o.ephemeral {
		return ctx
	}
	return repeatable(ctx)
}

// makeParents creates what is missing above p, from the top.
func makeParents(ctx context.Context, c *client.Client, p string, answered func()) error {
	parent := path.Dir(p)
	if parent == "/" || parent == "." {
		return nil
	}
	_, err := c.Create(repeatable(ctx), parent, nil)
	answered()
	if errors.Is(err, client.ErrNoNode) {
		if err := makeParents(ctx, c, parent, answered); err != nil {
			return err
		}
		_, err = c.Create(repeatable(ctx), parent, nil)
		answered()
	}
	if errors.Is(err, client.ErrNodeExists) {
		return nil
	}
	return err
}

// checkPath refuses a malformed path, and explains what became of an -e that was
// meant as endpoints. A number is put behind the path of a sequential znode.
func (o *createOptions) checkPath(p string) error {
	whole := p
	if o.sequential {
		whole += "0"
	}
	err := znode.ValidatePath(whole)
	switch {
	case err == nil:
		return nil
	case o.ephemeral && !path.IsAbs(p):
		return usagef("create: %w\nhint: a path begins with /; behind create, -e means ephemeral, so endpoints go in front of it", err)
	default:
		return usagef("create: %w", err)
	}
}

// createEphemeral creates the znode in a session of its own.
func (e *env) createEphemeral(ctx context.Context, o *createOptions, p string, data []byte, opts []client.CreateOption) error {
	c, err := e.dialWith(ctx, client.WithSessionTimeout(o.sessionTimeout))
	if err != nil {
		return err
	}
	pace := e.pace(ctx)
	err = e.diagnose(ctx, pace.result(e.create(pace.ctx, c, o, p, data, opts, pace.answered)))
	pace.stop()
	if err != nil {
		return errors.Join(err, c.Close())
	}
	s := c.Session()
	if !o.hold {
		e.note("session %s is left to expire: the znode goes within about %s (--hold keeps it)", s.ID(), s.Timeout())
		return nil // the end of the process ends the session's heartbeats
	}
	e.note("session %s keeps the znode until Ctrl-C", s.ID())
	select {
	case <-ctx.Done():
		return c.Close()
	case <-s.Context().Done():
		return errors.Join(fmt.Errorf("the znode is gone: %w", context.Cause(s.Context())), c.Close())
	}
}
