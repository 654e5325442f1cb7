package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/backupfile"
	"github.com/coordd/coord/zxid"
)

// restoreOptions are the flags of backup restore.
type restoreOptions struct {
	intoEmpty bool
	minToken  string
}

// restoreItem is what a restore has done, for scripts.
type restoreItem struct {
	File          string `json:"file"`
	Zxid          string `json:"zxid"` // of the restore: every later token is larger
	Znodes        int64  `json:"znodes"`
	SessionsEnded int64  `json:"sessionsEnded"`
}

func newBackupRestoreCmd(e *env) *cobra.Command {
	var o restoreOptions
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put a backup in the place of the tree of a running cluster",
		Long: `Put a backup in the place of the tree, on all servers at once, while the cluster
runs. Every session ends and hears why; locks and all other ephemeral znodes go,
those in the backup too. Fencing tokens go on rising: the first one afterwards is
above every one that was ever given, here and where the backup was made.

The file is read as a whole first. Until the last byte is on a majority of the
servers nothing is replaced; a restore that is cut short changes nothing.

--min-token names a token that is known to have been given, when the cluster that
gave it is lost and may have been ahead of the backup by more than its elections
tell.`,
		Example: "  coordctl backup restore nightly.cbk\n" +
			"  coordctl backup restore nightly.cbk --into-empty\n" +
			"  coordctl backup restore nightly.cbk --min-token 391726450802819073 --yes",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.restoreBackup(cmd.Context(), args[0], &o)
		},
	}
	cmd.Flags().BoolVar(&o.intoEmpty, "into-empty", false, "only into a cluster that has no znodes yet")
	cmd.Flags().StringVar(&o.minToken, "min-token", "", "every later token is above this one")
	return cmd
}

func (e *env) restoreBackup(ctx context.Context, path string, o *restoreOptions) error {
	var token zxid.ID
	if o.minToken != "" {
		var err error
		if token, err = zxid.Parse(o.minToken); err != nil {
			return usagef("--min-token: %w", err)
		}
	}
	b, err := backupfile.Open(path)
	if err != nil {
		return backupError(err)
	}
	defer closeQuietly(b)
	sum, err := b.Verify()
	if err != nil {
		return backupError(fmt.Errorf("%s: %w", path, err))
	}
	if err := e.mayRestore(ctx, sum.Info, token, o.intoEmpty); err != nil {
		return err
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	reply, err := e.sendBackup(ctx, b, sum, &coordpb.RestoreBegin{
		Id: hex.EncodeToString(id[:]), Size: sum.StateBytes, Sha256: sum.State[:], MinToken: uint64(token), IntoEmpty: o.intoEmpty,
	})
	if err != nil {
		return err
	}
	item := restoreItem{path, zxid.ID(reply.GetZxid()).String(), reply.GetZnodes(), reply.GetSessionsEnded()}
	return e.object("Restore", item, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "restored %s from %s, made %s ago; %s ended; zxid goes on at %s\n",
			plural(int(item.Znodes), "znode"), path, madeAgo(sum.Info), plural(int(item.SessionsEnded), "session"), item.Zxid)
		return err
	})
}

// mayRestore says what the restore replaces, and asks.
func (e *env) mayRestore(ctx context.Context, info *coordpb.BackupInfo, token zxid.ID, intoEmpty bool) error {
	all, err := e.askAll(ctx, e.timeout)
	if err != nil {
		return err
	}
	if err := unreachable("backup restore", all); err != nil {
		return e.unmask(err)
	}
	var now *coordpb.StatusReply
	for _, s := range all {
		if s.err == nil && (now == nil || s.reply.GetZxid() > now.GetZxid()) {
			now = s.reply
		}
	}
	t, err := e.resolve()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("This replaces %s on cluster %s, ends %s and releases every lock.",
		plural(int(now.GetZnodes()), "znode"), now.GetClusterName(), everyOf(int(now.GetSessions()), "session"))
	if intoEmpty {
		what = fmt.Sprintf("This restores into cluster %s if it has no znodes.", now.GetClusterName())
	}
	from := ""
	if info.GetClusterId() != now.GetClusterId() {
		from = fmt.Sprintf(" of another cluster (%s, %s)", info.GetClusterName(), info.GetClusterId())
	}
	epoch := max(zxid.ID(now.GetZxid()).Epoch(), zxid.ID(info.GetZxid()).Epoch(), token.Epoch()) + 1
	question := fmt.Sprintf("%s\nThe backup%s was made %s ago and has %s.\nzxid goes on at %s or above, so no fencing token is given twice.",
		what, from, madeAgo(info), plural(int(info.GetZnodes()), "znode"), zxid.Make(epoch, 0))
	return e.confirm("backup restore", question, now.GetClusterName(), t.Protected)
}

// everyOf is the number with its word, and "all" in front of more than one.
func everyOf(n int, word string) string {
	if n > 1 {
		return "all " + plural(n, word)
	}
	return plural(n, word)
}

const (
	// restoreTries is how often a restore is begun anew whose server went away.
	restoreTries = 5
	restorePause = time.Second
	// restoreMessage is how many bytes of the backup one message carries.
	restoreMessage = 256 << 10
)

// sendBackup restores with one id, however often it has to be begun: a server
// that finds that it was done says so.
func (e *env) sendBackup(ctx context.Context, b *backupfile.File, sum *backupfile.Summary, begin *coordpb.RestoreBegin) (*coordpb.RestoreReply, error) {
	a, err := e.admins()
	if err != nil {
		return nil, err
	}
	defer closeQuietly(a)
	doubt := false // some attempt came so far that it may have been carried out
	for n := 1; ; n++ {
		reply, whole, err := e.sendOnce(ctx, a, b, sum, begin)
		last := n == restoreTries || ctx.Err() != nil
		if err == nil {
			refused := reply.GetError()
			doubt = doubt || refused.GetCode() == coordpb.Code_CODE_UNKNOWN_OUTCOME
			if last || !stopped(refused) {
				return reply, restoreError(replyError("backup restore", refused), doubt)
			}
			err = errors.New(refused.GetMessage())
		} else {
			doubt = doubt || whole
			if again := status.Code(err) == codes.Unavailable || errors.Is(err, client.ErrUnavailable); last || !again {
				if ctx.Err() != nil {
					err = errInterrupted
				}
				return nil, restoreError(e.unmask(adminError("backup restore", err)), doubt)
			}
		}
		e.note("the restore was cut short (%v), it is begun again", reason(err))
		select {
		case <-time.After(restorePause):
		case <-ctx.Done():
			return nil, restoreError(errInterrupted, doubt)
		}
	}
}

// restoreFailed is a restore that has ended with an error.
type restoreFailed struct {
	err   error
	doubt bool // it may have been carried out, or still be
}

func restoreError(err error, doubt bool) error {
	if err == nil {
		return nil
	}
	return &restoreFailed{err, doubt}
}

func (r *restoreFailed) Error() string { return r.err.Error() }
func (r *restoreFailed) Unwrap() error { return r.err }

// fate says what has become of the tree.
func (r *restoreFailed) fate() string {
	if r.doubt {
		return "it is not known whether the backup was or will be put in place: look at the tree when there is a quorum again, before you restore it once more"
	}
	return "nothing was replaced; the restore can be begun again"
}

func (r *restoreFailed) outcome() string {
	if r.doubt {
		return outcomeMaybeDone
	}
	return outcomeNotDone
}

// stopped reports that the server stopped before the end of the restore, or before
// it knew the outcome: another one knows, or does it.
func stopped(e *coordpb.Error) bool {
	return e.GetCode() == coordpb.Code_CODE_SHUTTING_DOWN || e.GetCode() == coordpb.Code_CODE_UNKNOWN_OUTCOME
}

// sendOnce makes one attempt. whole says that the server may have all of the
// backup: from then on it does not depend on us whether it is put in place.
func (e *env) sendOnce(ctx context.Context, a *client.Admin, b *backupfile.File, sum *backupfile.Summary, begin *coordpb.RestoreBegin) (reply *coordpb.RestoreReply, whole bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := a.Any().Restore(ctx)
	if err != nil {
		return nil, false, err
	}
	p := &transfer{verb: "restoring", znodes: sum.Znodes, total: sum.StateBytes}
	t := e.tellText(p.text)
	defer t.stop()
	m := &coordpb.RestoreRequest{Begin: begin}
	state, buf := b.State(), make([]byte, restoreMessage)
	for !whole {
		n, err := io.ReadFull(state, buf)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, false, err
		}
		whole = err != nil
		m.Data = buf[:n]
		if sendErr := stream.Send(m); sendErr != nil {
			whole = false
			break // the reply says why
		}
		p.done.Add(int64(n))
		m = &coordpb.RestoreRequest{}
	}
	reply, err = stream.CloseAndRecv()
	return reply, whole, err
}
