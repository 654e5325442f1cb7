package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/demo"
)

func newDemoCmd(e *env) *cobra.Command {
	return parent("demo", "Show promises being kept, against real servers", newPausedWorkerCmd(e), newDemoWorkerCmd(e))
}

func newPausedWorkerCmd(e *env) *cobra.Command {
	fencing := "on"
	cmd := &cobra.Command{
		Use:   "paused-worker",
		Short: "A worker is paused, loses its lock, and writes too late",
		Long: `Show why a lock needs a fencing token. Worker A takes a lock and is stopped with
SIGSTOP for longer than its session lasts. Worker B takes the lock and writes to a
PostgreSQL that is started for this. A goes on and writes, too.

It uses the cluster at the endpoints, or starts one of its own (coordd beside
coordctl, or on the PATH). The exit code is 0 only if the database refused A's write
and A had been told before. With --fencing=off the database takes every write: the
damage is shown, and the exit code is 1.`,
		Example: "  coordctl demo paused-worker\n" +
			"  coordctl demo paused-worker --fencing=off",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if fencing != "on" && fencing != "off" {
				return usagef("--fencing: %q is none of on, off", fencing)
			}
			connect, err := e.demoCluster(cmd.Context())
			if err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			return demo.PausedWorker(cmd.Context(), demo.Options{
				Cluster: connect, Worker: []string{self, "demo", "worker"}, Fencing: fencing == "on", Out: e.stdout,
			})
		},
	}
	cmd.Flags().StringVar(&fencing, "fencing", fencing, "on, or off to see the damage")
	return cmd
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

// demoLook is how long the demonstration looks for a cluster before it starts
// one.
const demoLook = 2 * time.Second

// demoCluster says how to reach the cluster at the endpoints; without endpoints
// if none answers. One that answers and is not well is an error: a demonstration
// must not go around it.
func (e *env) demoCluster(ctx context.Context) (demo.Cluster, error) {
	t, err := e.resolve()
	if err != nil {
		return demo.Cluster{}, err
	}
	if t.Protected {
		return demo.Cluster{}, usagef("context %q is protected\nhint: -e names a cluster to play with", t.name)
	}
	e.timeout = min(e.timeout, demoLook)
	st, err := e.clusterStatus(ctx)
	switch {
	case errors.Is(err, client.ErrUnavailable):
		return demo.Cluster{}, nil
	case err != nil:
		return demo.Cluster{}, err
	case st.Leader == "":
		return demo.Cluster{}, &codedError{exitUnreachable, errors.New("the cluster at the endpoints has no leader")}
	}
	return demo.Cluster{
		Endpoints: strings.Join(t.Endpoints, ","), CACert: t.CACert, Cert: t.Cert, Key: t.Key, ServerName: t.ServerName,
	}, nil
}
