package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/internal/buildinfo"
	"github.com/coordd/coord/internal/contexts"
)

const (
	defaultDevPort = 7420
	devPortStep    = 10 // ports of one server: gRPC, peer, HTTP, ZooKeeper
)

type devOptions struct {
	nodes   int
	dataDir string
	port    int
	verbose bool
}

func newDevCmd() *cobra.Command {
	o := devOptions{nodes: 1}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a throw-away cluster on this machine",
		Long: `Run a cluster of real server processes on loopback until Ctrl-C.

Server i (from 0) is named n(i+1) and takes the ports BASE+10*i for clients,
+1 for its peers and +2 for health and metrics. BASE is 7420 or, when a port is
taken, the next that is free; with --port it is that one or an error.

Data is thrown away on exit unless --data-dir names a place for it. In it, nN/
has server N's data, its log coordd.log and its process id coordd.pid.`,
		Example: "  coordd dev --nodes 3\n  coordd dev --nodes 3 --data-dir ~/coord --port 9000",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("port") && (o.port < 1 || o.port+devPortStep*o.nodes > 65535) {
				return usageError{fmt.Errorf("--port: %d leaves no room for %d servers", o.port, o.nodes)}
			}
			if o.nodes < 1 || o.nodes > 9 || o.nodes%2 == 0 {
				return usageError{fmt.Errorf("--nodes: %d is not 1, 3, 5, 7 or 9: an even number bears no more failures than one less", o.nodes)}
			}
			return runDev(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().IntVar(&o.nodes, "nodes", o.nodes, "number of servers")
	cmd.Flags().StringVar(&o.dataDir, "data-dir", "", "keep the data here (default: throw it away on exit)")
	cmd.Flags().IntVar(&o.port, "port", 0, "first port (default: 7420 or the next free)")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "print the servers' whole log, not only warnings")
	return cmd
}

// runDev starts the servers, waits until they are ready, says how to use them
// and keeps watch until ctx ends or the user quits.
func runDev(ctx context.Context, o devOptions, stdout, stderr io.Writer) error {
	started := time.Now()
	raw := new(atomic.Bool)
	screen := console{stdout, raw}
	base, err := chooseBase(o)
	if err != nil {
		return err
	}
	dir, cleanup, err := devDirectory(o.dataDir)
	if err != nil {
		return err
	}
	defer cleanup()
	d, err := newDevCluster(dir, base, o, console{stderr, raw})
	if err != nil {
		return err
	}
	defer d.stop()
	if err := d.startAll(); err != nil {
		return err
	}
	if err := d.waitReady(ctx, time.Minute); err != nil {
		return err
	}
	d.printSummary(screen, o, time.Since(started))
	return d.serveKeys(ctx, screen)
}

// devDirectory returns the directory and what to do with it at the end.
func devDirectory(dataDir string) (string, func(), error) {
	if dataDir == "" {
		dir, err := os.MkdirTemp("", "coordd-dev-")
		return dir, func() { os.RemoveAll(dir) }, err
	}
	dir, err := filepath.Abs(dataDir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", nil, err
	}
	lock, err := lockDevDirectory(dir)
	if err != nil {
		return "", nil, err
	}
	return dir, func() { lock.Close() }, nil
}

// lockDevDirectory keeps a second `coordd dev` out of dir: it would overwrite
// the configuration and the pid files of the first one's servers before these
// servers could refuse. The lock ends with the process even if that is killed.
func lockDevDirectory(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "dev.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("--data-dir: another coordd dev runs in %s", dir)
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, nil
}

// chooseBase finds the first port so that all are free.
func chooseBase(o devOptions) (int, error) {
	if o.port != 0 {
		if taken := takenPort(o.port, o.nodes); taken != 0 {
			return 0, fmt.Errorf("port %d is taken; choose another --port, or leave it out to use the next free one", taken)
		}
		return o.port, nil
	}
	for base := defaultDevPort; base+devPortStep*o.nodes < 32768; base += devPortStep {
		if takenPort(base, o.nodes) == 0 {
			return base, nil
		}
	}
	return 0, fmt.Errorf("no free ports found from %d on", defaultDevPort)
}

// takenPort returns a port of the range that somebody listens on, or 0.
func takenPort(base, nodes int) int {
	for i := range nodes {
		for offset := range 4 {
			port := base + devPortStep*i + offset
			l, err := net.Listen("tcp", loopback(port))
			if err != nil {
				return port
			}
			l.Close()
		}
	}
	return 0
}

func loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// saveContext makes the servers known to coordctl. It becomes the current
// context unless the user has chosen another one. The result is what to type
// before a command.
func saveContext(endpoints []string) (prefix string, err error) {
	path, err := contexts.Path()
	if err != nil {
		return "", err
	}
	program := coordctlProgram()
	prefix = program + " --context dev"
	err = contexts.Update(path, func(f *contexts.File) error {
		f.Set("dev", contexts.Context{Endpoints: endpoints})
		if f.Current == "" || f.Current == "dev" {
			f.Current = "dev"
			prefix = program
		}
		return nil
	})
	return prefix, err
}

func (d *devCluster) printSummary(w io.Writer, o devOptions, took time.Duration) {
	what := "one server"
	if len(d.nodes) > 1 {
		what = fmt.Sprintf("%d servers", len(d.nodes))
	}
	keep := "data is thrown away on exit (keep it with --data-dir)"
	if o.dataDir != "" {
		keep = "data is kept in " + d.dir
	}
	fmt.Fprintf(w, "coordd %s   %s, %s\n\n", buildinfo.Version, what, keep)
	d.printTable(w)
	ctl, err := saveContext(d.endpoints())
	if err != nil {
		fmt.Fprintf(w, "\nwarning: the context `dev` is not saved: %v\n", err)
		ctl = coordctlProgram() + " -e " + d.nodes[0].grpc()
	}
	fmt.Fprintf(w, "\nready in %.2f s.  Ctrl-C stops.  Try:  %s create /hello world && %s get /hello\n", took.Seconds(), ctl, ctl)
}
