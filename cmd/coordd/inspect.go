package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/internal/backupfile"
)

// inspectFlags are those of inspect.
type inspectFlags struct {
	from, to uint64
	entries  bool
	json     bool
	temp     string
}

func newInspectCmd() *cobra.Command {
	var f inspectFlags
	cmd := &cobra.Command{
		Use:   "inspect DIR|FILE",
		Short: "Look into a data directory, a snapshot or a backup, without a server",
		Long: `Say what a data directory holds: whose it is, its term, log and snapshots, and the
state that they lead to, with its digest. With --entries, or a range, also the
entries of the log, each with its commands. A snapshot (its directory, or the
state.bin in it) and a backup may be looked into alone.

Nothing is changed: a data directory is copied first, to $TMPDIR or --temp, and
one that a server has is refused. Data of znodes, passwords, and secrets of
sessions are not printed.`,
		Example: "  coordd inspect /var/lib/coordd\n" +
			"  coordd inspect /var/lib/coordd --from 120400 --to 120500 --json\n" +
			"  coordd inspect nightly.cbk",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			fl := cmd.Flags()
			f.entries = f.entries || fl.Changed("from") || fl.Changed("to")
			return inspect(cmd.Context(), &f, args[0], cmd.OutOrStdout())
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.entries, "entries", false, "print the entries of the log")
	fl.Uint64Var(&f.from, "from", 0, "print the entries of the log from this index on")
	fl.Uint64Var(&f.to, "to", math.MaxUint64, "print the entries of the log up to this index")
	fl.BoolVar(&f.json, "json", false, "a JSON document on each line")
	fl.StringVar(&f.temp, "temp", "", "directory for the copy of a data directory")
	return cmd
}

// inspected says what was found, as lines for people or as documents.
type inspected struct {
	out  io.Writer
	json bool
}

// say prints one document, or text.
func (p *inspected) say(kind string, value any, text string) error {
	if !p.json {
		_, err := io.WriteString(p.out, text)
		return err
	}
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.out, "{\"kind\":%q,%s\n", kind, b[1:])
	return err
}

func inspect(ctx context.Context, f *inspectFlags, path string, out io.Writer) error {
	p := &inspected{out, f.json}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return inspectFile(p, path)
	}
	if state := filepath.Join(path, "state.bin"); fileExists(state) {
		return inspectSnapshot(p, state)
	}
	return inspectDir(ctx, p, f, path)
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// inspectFile looks into a backup or a snapshot.
func inspectFile(p *inspected, path string) error {
	b, err := backupfile.Open(path)
	if errors.Is(err, backupfile.ErrNotBackup) {
		return inspectSnapshot(p, path)
	}
	if err != nil {
		return err
	}
	s, err := b.Verify()
	if err := errors.Join(err, b.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	i := s.Info
	doc := map[string]any{
		"file": path, "bytes": s.Bytes, "sha256": fmt.Sprintf("%x", s.SHA256), "cluster": i.GetClusterName(), "clusterId": i.GetClusterId(),
		"server": i.GetServer(), "zxid": hex(i.GetZxid()), "index": i.GetIndex(), "znodes": i.GetZnodes(), "featureLevel": i.GetFeatureLevel(),
		"time": clockText(i.GetTimeMs()), "digest": digestText(i.GetDigest()),
	}
	return p.say("Backup", doc, fmt.Sprintf("backup of cluster %s (%s), made by %s at %s\nzxid %s, log index %d, %s, feature level %d, digest %s of the server's state\nsha256 %x, checked\n",
		i.GetClusterName(), i.GetClusterId(), i.GetServer(), clockText(i.GetTimeMs()), hex(i.GetZxid()), i.GetIndex(),
		counted(int(i.GetZnodes()), "znode"), i.GetFeatureLevel(), digestText(i.GetDigest()), s.SHA256))
}

func inspectSnapshot(p *inspected, path string) error {
	r, err := os.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	v, err := fsm.ReadBackup(r)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	digest := v.Digest()
	doc := map[string]any{
		"file": path, "clusterId": v.ClusterID, "zxid": v.Zxid.String(), "index": v.Index, "term": v.Term, "znodes": v.Tree.Counts().Nodes,
		"sessions": v.Sessions.Len(), "featureLevel": v.FeatureLevel, "clock": clockText(v.Clock), "digest": digestText(digest),
	}
	return p.say("Snapshot", doc, fmt.Sprintf("snapshot of cluster %s at log index %d of term %d, zxid %s, clock %s\n%s, %s, feature level %d, digest %s, checked\n",
		v.ClusterID, v.Index, v.Term, v.Zxid, clockText(v.Clock), counted(v.Tree.Counts().Nodes, "znode"), counted(v.Sessions.Len(), "session"),
		v.FeatureLevel, digestText(digest)))
}

func inspectDir(ctx context.Context, p *inspected, f *inspectFlags, dir string) (err error) {
	d, err := cluster.OpenDisk(ctx, dir, f.temp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	s, err := d.Summary()
	if err != nil {
		return err
	}
	if err := p.say("DataDirectory", newDirectoryItem(s), summaryText(s)); err != nil {
		return err
	}
	if !f.entries {
		return nil
	}
	return d.Entries(f.from, f.to, func(e *cluster.DiskEntry) error { return errors.Join(ctx.Err(), p.entry(e)) })
}

// directoryItem is a data directory as scripts see it.
type directoryItem struct {
	Server       string         `json:"server"`
	ClusterID    string         `json:"clusterId"`
	Recovering   bool           `json:"recovering,omitempty"`
	Refused      string         `json:"refused,omitempty"` // why a server does not start with it
	Lost         string         `json:"lost,omitempty"`    // what cannot be read: the state ends before it
	LogStore     string         `json:"logStore"`
	Term         uint64         `json:"term"`
	FirstIndex   uint64         `json:"firstIndex"`
	LastIndex    uint64         `json:"lastIndex"`
	LastTerm     uint64         `json:"lastTerm"`
	Snapshots    []snapshotItem `json:"snapshots"`
	Members      []memberItem   `json:"members"`
	Index        uint64         `json:"index"` // of the state, like all that follows
	Zxid         string         `json:"zxid"`
	Clock        string         `json:"clock"`
	Digest       string         `json:"digest"`
	Znodes       int            `json:"znodes"`
	Sessions     int            `json:"sessions"`
	FeatureLevel uint32         `json:"featureLevel"`
}

type snapshotItem struct {
	ID    string `json:"id"`
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	Bytes int64  `json:"bytes"`
}

type memberItem struct {
	ID   string `json:"id"`
	Vote bool   `json:"vote"`
}

func newDirectoryItem(s *cluster.DiskSummary) *directoryItem {
	d := &directoryItem{
		Server: s.Server, ClusterID: s.Cluster, Recovering: s.Recovering, LogStore: s.LogStore, Term: s.Term,
		FirstIndex: s.First, LastIndex: s.Last, LastTerm: s.LastTerm, Snapshots: []snapshotItem{}, Members: []memberItem{},
		Index: s.Index, Zxid: s.Zxid.String(), Clock: clockText(s.Clock), Digest: digestText(s.Digest),
		Znodes: s.Znodes, Sessions: s.Sessions, FeatureLevel: s.FeatureLevel,
	}
	d.Refused, d.Lost = errorText(errors.Join(s.Differs, s.Removed)), errorText(s.Lost)
	for _, x := range s.Snapshots {
		d.Snapshots = append(d.Snapshots, snapshotItem(x))
	}
	for _, m := range s.Members {
		d.Members = append(d.Members, memberItem(m))
	}
	return d
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func summaryText(s *cluster.DiskSummary) string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s "+format+"\n", append([]any{name}, args...)...)
	}
	row("server", "%s", s.Server)
	row("cluster", "%s", s.Cluster)
	if s.Recovering {
		row("", "a recovery was begun and not finished")
	}
	for _, err := range []error{s.Differs, s.Removed} {
		if err != nil {
			row("refused", "%v", err)
		}
	}
	row("term", "%d", s.Term)
	row("log", "%s, entries %d to %d, the last of term %d", s.LogStore, s.First, s.Last, s.LastTerm)
	for _, x := range s.Snapshots {
		row("snapshot", "%s, at entry %d of term %d, %d bytes", x.ID, x.Index, x.Term, x.Bytes)
	}
	for _, m := range s.Members {
		role := "votes"
		if !m.Vote {
			role = "has no vote"
		}
		row("member", "%s %s", m.ID, role)
	}
	if s.Lost != nil {
		row("lost", "what is behind entry %d: %v", s.Index, s.Lost)
	}
	row("state", "at entry %d, zxid %s, clock %s", s.Index, s.Zxid, clockText(s.Clock))
	row("", "%s, %s, feature level %d, digest %s", counted(s.Znodes, "znode"), counted(s.Sessions, "session"), s.FeatureLevel, digestText(s.Digest))
	return b.String()
}

func hex(z uint64) string        { return fmt.Sprintf("0x%x", z) }
func digestText(d uint64) string { return fmt.Sprintf("%016x", d) }
func clockText(ms int64) string  { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
