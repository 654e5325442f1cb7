package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/demo"
)

func newDemoCmd(e *env) *cobra.Command {
	return parent("demo", "Show promises being kept, against real servers",
		newPausedWorkerCmd(e), newWalletCmd(e), newDoubleClickCmd(e), newNightlyJobCmd(e), newFailoverCmd(e), newLayersCmd(e), newLateReleaseCmd(e), newHerdCmd(e), newDemoWorkerCmd(e))
}

// demoPlace says, in each demonstration's help, where it runs and how it ends.
const demoPlace = `

It uses the cluster at the endpoints, or starts one of its own (coordd beside
coordctl, or on the PATH). The exit code is 0 only if the promise held.`

// demonstration is what the commands below `coordctl demo` have in common.
type demonstration struct {
	use, short, long, example string
	// layers are those that a flag switches off, each with what the flag's help
	// says is seen then.
	layers []demoLayer
	// ownCluster says that it never plays with the cluster at the endpoints.
	ownCluster bool
	run        func(context.Context, demo.Options) error
}

type demoLayer struct {
	flag  string
	layer demo.Layer
	shows string
}

// command makes the command. Flags of its own are added by the caller.
func (d *demonstration) command(e *env) *cobra.Command {
	switches := make([]onOff, len(d.layers))
	cmd := &cobra.Command{
		Use: d.use, Short: d.short, Long: d.long, Example: d.example, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := demo.Options{Out: e.stdout}
			for i, l := range d.layers {
				if !switches[i] {
					o.Without = append(o.Without, l.layer)
				}
			}
			if !d.ownCluster {
				connect, err := e.demoCluster(cmd.Context())
				if err != nil {
					return err
				}
				o.Cluster = connect
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			o.Worker = []string{self, "demo", "worker"}
			return d.run(cmd.Context(), o)
		},
	}
	for i, l := range d.layers {
		switches[i] = true
		cmd.Flags().Var(&switches[i], l.flag, "on, or off to see "+l.shows)
	}
	return cmd
}

// onOff is a flag that is said to be on or off.
type onOff bool

// Type is the value's name in the help.
func (*onOff) Type() string { return "on|off" }

func (o *onOff) String() string {
	if *o {
		return "on"
	}
	return "off"
}

// Set takes on or off.
func (o *onOff) Set(text string) error {
	if text != "on" && text != "off" {
		return fmt.Errorf("%q is none of on, off", text)
	}
	*o = text == "on"
	return nil
}

// newDemoWorkerCmd is one worker of a demonstration, in a process of its own.
func newDemoWorkerCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:    "worker CONFIG",
		Short:  "Be a worker of a demonstration",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return demo.RunWorker(cmd.Context(), args[0], e.stdin, e.stdout)
		},
	}
}

const (
	// demoLook is how long the demonstration looks for a cluster before it
	// starts one.
	demoLook = 2 * time.Second
	// demoPatience is how long it waits for a cluster that is there to have a
	// leader: it may just be electing one.
	demoPatience = 20 * time.Second
)

// demoCluster says how to reach the cluster at the endpoints; without endpoints
// if none answers. One that answers and stays without a leader is an error: a
// demonstration must not go around it.
func (e *env) demoCluster(ctx context.Context) (demo.Cluster, error) {
	t, err := e.resolve()
	if err != nil {
		return demo.Cluster{}, err
	}
	if t.Protected {
		return demo.Cluster{}, usagef("context %q is protected\nhint: -e names a cluster to play with", t.name)
	}
	e.timeout = min(e.timeout, demoLook)
	for began := time.Now(); ; {
		st, err := e.clusterStatus(ctx)
		switch {
		case errors.Is(err, client.ErrUnavailable):
			return demo.Cluster{}, nil
		case err != nil:
			return demo.Cluster{}, err
		case st.Leader != "":
			return demo.Cluster{
				Endpoints: strings.Join(t.Endpoints, ","), CACert: t.CACert, Cert: t.Cert, Key: t.Key, ServerName: t.ServerName,
			}, nil
		case ctx.Err() != nil:
			return demo.Cluster{}, ctx.Err()
		case time.Since(began) > demoPatience:
			return demo.Cluster{}, &codedError{exitUnreachable, errors.New("the cluster at the endpoints has no leader")}
		}
		time.Sleep(dialPause)
	}
}
