package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/internal/backupfile"
)

func newBackupSaveCmd(e *env) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "save FILE",
		Short: "Save the tree of a running cluster",
		Long: `Save the tree as it is at one instant, while the cluster goes on. Any server will
do: with -e n3:7420 it is made by n3. The file is written aside, read back as a
whole, and only then given its name.

It holds all data and ACLs, also those that the caller may not read, but no
session and no secret of one.`,
		Example: "  coordctl backup save nightly.cbk\n" +
			"  coordctl -e n3:7420 backup save /backup/$(date +%F).cbk --json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var item *backupItem
			err := e.adminMany(cmd.Context(), "backup save", func(ctx context.Context, a coordpb.AdminClient, answered func()) (err error) {
				item, err = e.saveBackup(ctx, a, args[0], force, answered)
				return err
			})
			if err != nil {
				return backupError(err)
			}
			return e.object("Backup", item, item.line)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace FILE if it is there")
	return cmd
}

// saveBackup writes what a server streams to a file. answered is called for each
// message.
func (e *env) saveBackup(ctx context.Context, a coordpb.AdminClient, path string, force bool, answered func()) (*backupItem, error) {
	stream, err := a.Backup(ctx, &coordpb.BackupRequest{})
	if err != nil {
		return nil, err
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	answered()
	info := first.GetInfo()
	if info == nil {
		return nil, errors.New("the server sent no description of the backup")
	}
	w, err := backupfile.Create(path, force, info)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	p := &transfer{verb: "saving", znodes: info.GetZnodes(), total: info.GetSize()}
	t := e.tellText(p.text)
	err = receiveBackup(stream, w, p, answered)
	t.stop()
	if err != nil {
		return nil, err
	}
	s, err := w.Commit()
	if err != nil {
		return nil, err
	}
	return newBackupItem(path, s.Bytes, info).checked(s), nil
}

// receiveBackup returns when all has come and is what the server says it sent.
func receiveBackup(stream coordpb.Admin_BackupClient, w *backupfile.Writer, p *transfer, answered func()) error {
	var sum []byte
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		answered()
		if _, err := w.Write(m.GetData()); err != nil {
			return err
		}
		p.done.Add(int64(len(m.GetData())))
		if len(m.GetSha256()) > 0 {
			sum = m.GetSha256()
		}
	}
	if got := w.StateSum(); !bytes.Equal(got, sum) {
		return fmt.Errorf("the bytes that came have SHA-256 %x, the server sent %x: nothing was saved", got, sum)
	}
	return nil
}

// transfer is how far a backup is.
type transfer struct {
	verb   string
	znodes int64
	total  int64 // bytes; about
	done   atomic.Int64
}

func (t *transfer) text() string {
	done, total := t.done.Load(), max(t.total, 1)
	return fmt.Sprintf("%s %s: %d %%, %s of about %s", t.verb, plural(int(t.znodes), "znode"), min(100*done/total, 100), size(done), size(t.total))
}
