package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/backupfile"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

func newBackupCmd(e *env) *cobra.Command {
	return parent("backup", "Save the tree to a file, look into the file, and restore it",
		newBackupSaveCmd(e), newBackupVerifyCmd(e), newBackupShowCmd(e), newBackupRestoreCmd(e))
}

// backupItem is a backup as scripts see it.
type backupItem struct {
	File        string `json:"file"`
	Bytes       int64  `json:"bytes"`
	SHA256      string `json:"sha256,omitempty"` // of the file; only if it was read as a whole
	Checked     bool   `json:"checked"`
	ClusterName string `json:"clusterName"`
	ClusterID   string `json:"clusterId"`
	Server      string `json:"server"` // that made it
	Zxid        string `json:"zxid"`
	Index       string `json:"index"`
	Znodes      int64  `json:"znodes"`
	DataBytes   int64  `json:"dataBytes"`
	Sessions    int64  `json:"sessions"` // open when it was made; they are not in it
	Time        string `json:"time"`
	Digest      string `json:"digest"` // of the server's state
	Level       uint32 `json:"featureLevel"`
	Version     string `json:"version"`
}

func newBackupItem(file string, bytes int64, i *coordpb.BackupInfo) *backupItem {
	return &backupItem{
		File: file, Bytes: bytes, ClusterName: i.GetClusterName(), ClusterID: i.GetClusterId(), Server: i.GetServer(),
		Zxid: zxid.ID(i.GetZxid()).String(), Index: fmt.Sprint(i.GetIndex()), Znodes: i.GetZnodes(), DataBytes: i.GetDataBytes(),
		Sessions: i.GetSessions(), Time: timestamp(i.GetTimeMs()), Digest: fmt.Sprintf("0x%016x", i.GetDigest()),
		Level: i.GetFeatureLevel(), Version: i.GetVersion(),
	}
}

// checked says that the whole file was read and found right.
func (b *backupItem) checked(s *backupfile.Summary) *backupItem {
	b.Bytes, b.SHA256, b.Checked = s.Bytes, hex.EncodeToString(s.SHA256[:]), true
	return b
}

// line is the backup in one line.
func (b *backupItem) line(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s  %s  %s  zxid %s  sha256 %s  from %s  checked\n",
		b.File, size(b.Bytes), plural(int(b.Znodes), "znode"), b.Zxid, b.SHA256, b.Server)
	return err
}

// backupError gives an error of a file its exit code.
func backupError(err error) error {
	switch {
	case errors.Is(err, backupfile.ErrDamaged), errors.Is(err, backupfile.ErrNotBackup):
		return &codedError{exitUnhealthy, err}
	case errors.Is(err, backupfile.ErrExists):
		return &codedError{exitPrecondition, fmt.Errorf("%w\nhint: --force replaces it", err)}
	default:
		return err
	}
}

func newBackupVerifyCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "verify FILE",
		Short: "Read a whole backup and say whether it can be restored",
		Long: `Read a whole backup: its SHA-256 must be right, and its content a tree that a
server can take. No server is asked. Exit code 8 if it is damaged.`,
		Example: "  coordctl backup verify nightly.cbk",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := backupfile.Open(args[0])
			if err != nil {
				return backupError(err)
			}
			defer closeQuietly(b)
			s, err := b.Verify()
			if err != nil {
				return backupError(fmt.Errorf("%s: %w", args[0], err))
			}
			item := newBackupItem(args[0], s.Bytes, s.Info).checked(s)
			return e.object("Backup", item, item.line)
		},
	}
}

func newBackupShowCmd(e *env) *cobra.Command {
	var children bool
	cmd := &cobra.Command{
		Use:   "show FILE [PATH]",
		Short: "Print what a backup holds",
		Long: `Print where a backup comes from, or with PATH the data of a znode in it, as
coordctl get does. No server is asked. ACLs do not matter: whoever can read the
file can read all of it.`,
		Example: "  coordctl backup show nightly.cbk\n" +
			"  coordctl backup show nightly.cbk /app/config\n" +
			"  coordctl backup show nightly.cbk / --children",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := backupfile.Open(args[0])
			if err != nil {
				return backupError(err)
			}
			defer closeQuietly(b)
			if len(args) == 1 {
				item := newBackupItem(args[0], b.StateBytes(), b.Info())
				return e.object("Backup", item, item.card)
			}
			if err := znode.ValidatePath(args[1]); err != nil {
				return err
			}
			return backupError(e.showBackedUp(b, args[1], children))
		},
	}
	cmd.Flags().BoolVar(&children, "children", false, "print the names of the children instead of the data")
	return cmd
}

// card is the backup in a few lines.
func (b *backupItem) card(w io.Writer) error {
	for _, row := range [][2]string{
		{"cluster", b.ClusterName + " (" + b.ClusterID + ")"},
		{"made", b.Time + " by " + b.Server + ", coordd " + b.Version},
		{"zxid", b.Zxid + ", log index " + b.Index},
		{"znodes", fmt.Sprintf("%d, %s of data", b.Znodes, size(b.DataBytes))},
		{"sessions", fmt.Sprintf("%d were open; they are not in it", b.Sessions)},
		{"digest", b.Digest + " of the server's state"},
		{"level", fmt.Sprint(b.Level)},
	} {
		if _, err := fmt.Fprintf(w, "%-9s %s\n", row[0], row[1]); err != nil {
			return err
		}
	}
	return nil
}

// backedUpNode is a znode in a backup.
type backedUpNode struct {
	Path string `json:"path"`
	payload
	Stat     *statItem `json:"stat"`
	Children []string  `json:"children"`
}

func (e *env) showBackedUp(b *backupfile.File, path string, children bool) error {
	v, err := b.View()
	if err != nil {
		return err
	}
	all := &znode.Caller{Trusted: true}
	data, st, err := v.Tree.Get(path, all)
	if err != nil {
		return &client.Error{Op: "show", Path: path, Err: err, Index: -1}
	}
	names, _, err := v.Tree.Children(path, all)
	if err != nil {
		return err
	}
	if names == nil {
		names = []string{}
	}
	return e.object("Node", backedUpNode{path, newPayload(data), newStatItem(&st), names}, func(w io.Writer) error {
		if children {
			_, err := io.WriteString(w, strings.Join(append(names, ""), "\n"))
			return err
		}
		return e.printData(w, &client.Node{Path: path, Data: data, Stat: st}, false)
	})
}

// madeAgo is the age of a backup by the clock of this machine.
func madeAgo(i *coordpb.BackupInfo) string { return ago(time.Since(time.UnixMilli(i.GetTimeMs()))) }
