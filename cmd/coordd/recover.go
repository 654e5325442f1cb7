package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/zxid"
)

// recoverFlags are those of recover.
type recoverFlags struct {
	config  configFlags
	keep    string
	preview bool
	yes     bool
}

func newRecoverCmd() *cobra.Command {
	var f recoverFlags
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Begin the cluster anew from the data of one server, when a quorum is lost for good",
		Long: `Begin the cluster anew from the data of this server, which must not run. This is
for when a majority of the servers has lost its disks and will not come back. As
long as a majority may come back, wait for it: nothing is lost then.

What other servers acknowledged and this one never got is lost, and nobody can say
how much that is. What this one has in its log is kept, also the end of it that
may never have been acknowledged. The new cluster has this server as its only
member, a new id, and no sessions; fencing tokens go on rising.

The former members must never start again with their old data: a majority of them
would be the old cluster. Wipe them, and they join the new one.

--preview shows what would be done and changes nothing. It may be run again when
it was interrupted; until it has ended the server does not start.`,
		Example: "  coordd recover --config coordd.yaml --preview\n" +
			"  coordd recover --config coordd.yaml --keep n3",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return recoverServer(cmd.Context(), &f, os.Stdin, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.config.add(cmd.Flags())
	cmd.Flags().StringVar(&f.keep, "keep", "", "name of the server whose data is kept: this one, or nothing is done")
	cmd.Flags().BoolVar(&f.preview, "preview", false, "show what would be done, and what may be lost")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask; needs --keep")
	return cmd
}

func recoverServer(ctx context.Context, f *recoverFlags, in io.Reader, out, errs io.Writer) error {
	c, _, err := f.config.load()
	if err != nil {
		return err
	}
	log := newLogger(c.Log, errs, new(slog.LevelVar))
	sc, err := serverConfig(c, log)
	if err != nil {
		return usageError{err}
	}
	switch {
	case f.keep != "" && f.keep != sc.Cluster.Name:
		return usageError{fmt.Errorf("this is %s, and %s was to be kept: run it there", sc.Cluster.Name, f.keep)}
	case f.yes && f.keep == "" && !f.preview:
		return usageError{errors.New("--yes needs --keep, so that the right server is kept")}
	}
	now, err := preview(ctx, &sc.Cluster, out)
	if err != nil || f.preview {
		return err
	}
	if err := confirmRecovery(ctx, f, &sc.Cluster, in, errs); err != nil {
		return err
	}
	done, err := cluster.Recover(sc.Cluster)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s is a cluster of its own now, with the id %s. Start it: coordd run.\nzxid goes on above %s; %s ended.\n",
		sc.Cluster.Name, done.ClusterID, done.Zxid, counted(done.Sessions, "session"))
	if others := othersThan(now, sc.Cluster.Name); len(others) > 0 {
		fmt.Fprintf(out, "Wipe the data of %s before they start again; they join as new.\n", strings.Join(others, ", "))
	}
	return nil
}

// preview says what the data directory holds and what recovering it means. It
// changes nothing.
func preview(ctx context.Context, c *cluster.Config, out io.Writer) (*cluster.DiskSummary, error) {
	d, err := cluster.OpenDisk(ctx, c.DataDir, "")
	if err != nil {
		return nil, err
	}
	s, err := d.Summary()
	if err := errors.Join(err, d.Close()); err != nil {
		return nil, err
	}
	if s.Cluster == "" {
		return nil, fmt.Errorf("%s belongs to no cluster: there is nothing to recover", c.DataDir)
	}
	if s.Differs != nil {
		return nil, fmt.Errorf("nothing can be recovered from here: %w", s.Differs)
	}
	now := time.Now()
	rows := [][2]string{
		{"server", s.Server + ", data in " + c.DataDir},
		{"cluster", c.ClusterName + ", id " + s.Cluster},
		{"last entry", fmt.Sprintf("%d of term %d, from %s", s.Index, s.LastTerm, whenAndAgo(s.Clock, now))},
		{"last zxid", s.Zxid.String()},
		{"snapshot", fmt.Sprintf("reaches entry %d; entries %d to %d are in the log", s.SnapshotApplied, s.First, s.Last)},
		{"holds", counted(s.Znodes, "znode") + ", " + counted(s.Sessions, "session")},
	}
	for _, r := range rows {
		fmt.Fprintf(out, "%-11s %s\n", r[0], r[1])
	}
	if s.Recovering {
		fmt.Fprintln(out, "A recovery was begun here and not finished; it goes on.")
	}
	if s.Removed != nil {
		fmt.Fprintf(out, "This server was taken out of its cluster, and has nothing of what came after that: %v\n", s.Removed)
	}
	epoch := max(s.Zxid.Epoch()+1, cluster.EpochAt(now))
	fmt.Fprintf(out, "\nKept: everything up to entry %d. Of the last entries nobody can say whether they were ever acknowledged; they count from now on.\n", s.Index)
	if s.Lost != nil {
		fmt.Fprintf(out, "Lost: whatever this server has behind entry %d, which cannot be read: %v\n", s.Index, s.Lost)
	}
	if others := othersThan(s, c.Name); len(others) > 0 {
		fmt.Fprintf(out, "Lost: whatever %s acknowledged behind entry %d, zxid %s. This server cannot know whether there was anything.\n",
			strings.Join(others, " and "), s.Index, s.Zxid)
		fmt.Fprintf(out, "Never start %s with the old data again.\n", strings.Join(others, " or "))
	}
	fmt.Fprintf(out, "Every session ends and its locks are released; zxid goes on at %s or above, above every token that is known.\n", zxid.Make(epoch, 0))
	return s, nil
}

// othersThan are the names of the former members but name, each once.
func othersThan(s *cluster.DiskSummary, name string) (out []string) {
	seen := map[string]bool{name: true}
	for _, m := range s.Members {
		if n := m.Name(); !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}

// confirmRecovery asks on a terminal, or is told not to.
func confirmRecovery(ctx context.Context, f *recoverFlags, c *cluster.Config, in io.Reader, out io.Writer) error {
	if f.yes {
		return nil
	}
	tty, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(tty.Fd())) {
		return usageError{errors.New("recover needs a terminal to ask on, or --yes with --keep")}
	}
	return askTwice(ctx, c.ClusterName, c.Name, in, out)
}

// askTwice asks for different words: the cluster's name and the server's. It gives
// up when ctx ends, and leaves the read that it waits for behind: the program is
// about to end.
func askTwice(ctx context.Context, clusterName, server string, in io.Reader, out io.Writer) error {
	answers := bufio.NewReader(in)
	for _, q := range [][2]string{
		{"\nIs a majority of the servers lost for good? Type the cluster's name, " + clusterName + ", to go on: ", clusterName},
		{"This cannot be undone. Type the name of the server that is kept, " + server + ": ", server},
	} {
		fmt.Fprint(out, q[0])
		type answer struct {
			line string
			err  error
		}
		given := make(chan answer, 1)
		go func() {
			line, err := answers.ReadString('\n')
			given <- answer{line, err}
		}()
		var a answer
		select {
		case a = <-given:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return errors.New("interrupted, nothing was done")
		}
		if a.err != nil && !errors.Is(a.err, io.EOF) {
			return fmt.Errorf("read the answer: %w", a.err)
		}
		if strings.TrimSpace(a.line) != q[1] {
			return usageError{errors.New("not confirmed, nothing was done")}
		}
	}
	return nil
}

// counted is "1 znode" or "7 znodes".
func counted(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// whenAndAgo is a cluster time in ms, and how long ago it was by this clock.
func whenAndAgo(ms int64, now time.Time) string {
	at := time.UnixMilli(ms)
	return fmt.Sprintf("%s (%s ago)", at.UTC().Format(time.RFC3339), max(now.Sub(at), 0).Round(time.Second))
}
