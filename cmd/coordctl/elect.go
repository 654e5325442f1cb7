package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/election"
	"github.com/coordd/coord/recipes/lock"
)

type electOptions struct {
	lockOptions
	value         string
	show, observe bool
}

// holds says whether the exit code of the command line is that of a command under
// a lock, so that failures of our own need codes apart.
func holds(cmd *cobra.Command) bool {
	switch cmd.CommandPath() {
	case "coordctl lock", "coordctl queue take":
		return true
	case "coordctl elect":
		return !cmd.Flags().Changed("show") && !cmd.Flags().Changed("observe")
	default:
		return false
	}
}

func newElectCmd(e *env) *cobra.Command {
	o := electOptions{lockOptions: lockOptions{conflictCode: exitNotAcquired, onLost: "kill", sessionTimeout: 30 * time.Second}}
	cmd := &cobra.Command{
		Use:   "elect [flags] PATH [COMMAND [ARGUMENT...]]",
		Short: "Run a command while being the leader",
		Long: `Become a candidate of the election at PATH, run the command once elected, and
resign when it has ended. Without a command, lead until Ctrl-C.

The command is run, ended and told of its fencing token as by 'coordctl lock', with
the same exit codes: 122 the leadership was lost, 123 not elected in time. Start it
again, by a loop or a supervisor, to be a candidate again.

--value is what observers see of the leader, an address for instance. --show prints
the leader (exit code 3 if there is none), and --observe every change, also that
there is none.`,
		Example: "  coordctl elect --value \"$(hostname):9000\" /election/scheduler ./scheduler\n" +
			"  coordctl elect --show /election/scheduler\n" +
			"  coordctl elect --observe --json /election/scheduler",
		Args:              belowRoot(cobra.MinimumNArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			argv := command(args[1:])
			switch {
			case o.show && o.observe:
				return usagef("--show and --observe exclude each other")
			case (o.show || o.observe) && len(argv) > 0:
				return usagef("--show and --observe take no command")
			case o.show:
				return e.showLeader(cmd.Context(), args[0])
			case o.observe:
				return e.observeLeader(cmd.Context(), args[0])
			}
			if err := o.check(); err != nil {
				return err
			}
			return e.elect(cmd.Context(), &o, args[0], argv)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&o.value, "value", "", "what observers see of the leader (default: program@host:pid)")
	f.BoolVar(&o.show, "show", false, "print the leader and do nothing else")
	f.BoolVar(&o.observe, "observe", false, "print each change of leader until Ctrl-C")
	f.DurationVar(&o.wait, "wait", 0, "give up after this long (0: never)")
	f.IntVar(&o.conflictCode, "conflict-exit-code", o.conflictCode, "exit code when not elected in time")
	o.addCommonFlags(f)
	return cmd
}

func (e *env) elect(ctx context.Context, o *electOptions, path string, argv []string) error {
	return e.runHolding(ctx, &o.lockOptions, path, argv, func(ctx context.Context, c *client.Client, opts []lock.Option) (*heldLock, error) {
		value := o.value
		if value == "" {
			value = c.Session().Name()
		}
		limit := ctx
		if o.wait > 0 {
			var cancel context.CancelFunc
			limit, cancel = context.WithTimeout(ctx, o.wait)
			defer cancel()
		}
		l, err := election.New(c, path, opts...).Campaign(limit, []byte(value))
		if err != nil {
			return nil, o.notAcquired(ctx, e, c, path, "elect "+path+": not elected", err)
		}
		return &heldLock{handle: l.Handle, giveBack: l.Resign}, nil
	})
}

// leaderItem is a leader as scripts see it; without one all but none is empty.
type leaderItem struct {
	None     bool    `json:"none"`
	Value    *string `json:"value,omitempty"`
	Encoding string  `json:"valueEncoding,omitempty"` // utf8 or base64
	Owner    string  `json:"owner,omitempty"`
	Token    string  `json:"token,omitempty"`
	Session  string  `json:"session,omitempty"`
	Node     string  `json:"node,omitempty"`
	Since    string  `json:"since,omitempty"`
	Zxid     string  `json:"zxid,omitempty"`
	Missed   bool    `json:"missed,omitempty"` // changes before it were not seen
}

func newLeaderItem(l *election.Leader) leaderItem {
	item := leaderItem{None: l.None(), Missed: l.Missed}
	if l.Zxid != 0 {
		item.Zxid = l.Zxid.String()
	}
	if item.None {
		return item
	}
	p := newPayload(l.Value)
	item.Value, item.Encoding = p.Data, p.Encoding
	item.Owner, item.Session, item.Node = l.Owner, l.Session.String(), l.Node
	if l.Token != 0 {
		item.Token = l.Token.String()
	}
	if !l.Since.IsZero() {
		item.Since = timestamp(l.Since.UnixMilli())
	}
	return item
}

// text is the leader in one line. A value may be anything.
func (i *leaderItem) text() string {
	if i.None {
		return "no leader"
	}
	value := ""
	if i.Value != nil {
		value = oneLine(*i.Value)
	}
	return fmt.Sprintf("%s  owner %s  token %s  since %s", dash(value), oneLine(dash(i.Owner)), dash(i.Token), dash(i.Since))
}

func (e *env) showLeader(ctx context.Context, path string) error {
	var l election.Leader
	err := e.with(ctx, func(ctx context.Context, c *client.Client) (err error) {
		l, err = election.New(c, path).Leader(ctx)
		return err
	})
	if err != nil {
		return electError(path, err)
	}
	item := newLeaderItem(&l)
	return e.object("Leader", &item, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, item.text())
		return err
	})
}

// electError says of which election it is.
func electError(path string, err error) error {
	if errors.Is(err, election.ErrNoLeader) {
		return &conflictError{fmt.Sprintf("elect %s: nobody leads", path), exitNotFound, err}
	}
	return as("elect", err)
}

func (e *env) observeLeader(ctx context.Context, path string) error {
	c, err := e.dial(ctx)
	if err != nil {
		return electError(path, err)
	}
	defer closeQuietly(c)
	for l, err := range election.New(c, path).Observe(ctx) {
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return electError(path, err)
		}
		item := newLeaderItem(&l)
		if err := e.printChange(&item); err != nil {
			return err
		}
	}
	return nil
}

// printChange prints one line of a stream.
func (e *env) printChange(item *leaderItem) error {
	if e.isJSON() {
		return e.line("Leader", item)
	}
	_, err := fmt.Fprintf(e.stdout, "%s  %s\n", time.Now().Format("15:04:05.000"), item.text())
	return err
}
