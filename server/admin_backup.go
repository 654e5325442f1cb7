package server

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
)

const (
	// maxBackups is how many backups one server makes at a time. Each keeps, for
	// as long as it takes, the pages of the tree that are changed meanwhile: at
	// most one more tree.
	maxBackups = 2
	// backupMessage is how many bytes of a backup one message carries.
	backupMessage = 256 << 10
	// backupPatience is how long a reader may take for one message. It holds
	// memory as long as it is served.
	backupPatience = 30 * time.Second
)

// errBackupStalled ends a backup whose reader does not read.
var errBackupStalled = fmt.Errorf("the reader of a backup took nothing for %s: %w", backupPatience, fsm.ErrSlowConsumer)

// Backup implements coordpb.AdminServer. It streams the state as it was at one
// instant, while the server goes on. It needs no leader: what it streams is what
// this server had applied.
func (a adminService) Backup(_ *coordpb.BackupRequest, stream grpc.ServerStreamingServer[coordpb.BackupReply]) error {
	if err := a.enterStream(stream.Context(), "backup"); err != nil {
		return err
	}
	s := a.s
	defer s.streams.done()
	if n := s.backups.Add(1); n > maxBackups {
		s.backups.Add(-1)
		return status.Errorf(codes.ResourceExhausted, "%d backups are being made at this server, try again or ask another one", n-1)
	}
	defer s.backups.Add(-1)
	return s.serveBackup(stream, backupPatience)
}

// serveBackup encodes and sends on a goroutine of its own, which ends when the
// handler returns: then gRPC ends the stream, whatever it waits for.
func (s *Server) serveBackup(stream grpc.ServerStreamingServer[coordpb.BackupReply], patience time.Duration) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	out := &backupStream{ctx: ctx, send: stream.Send, sum: sha256.New(), sent: make(chan struct{}, 1)}
	done := make(chan error, 1)
	s.workers.Go(func() { done <- s.guarded("backup", func() error { return s.writeBackup(out) }) })
	stalled := time.NewTimer(patience)
	defer stalled.Stop()
	for {
		select {
		case err := <-done:
			return statusOf(err)
		case <-out.sent:
			stalled.Reset(patience)
		case <-stalled.C:
			cancel(errBackupStalled)
			s.log.Warn("a backup was given up", "event", "backup_stalled", "err", errBackupStalled)
			return statusOf(errBackupStalled)
		case <-s.stopping:
			cancel(fsm.ErrShuttingDown)
			return statusOf(fsm.ErrShuttingDown)
		}
	}
}

func (s *Server) writeBackup(out *backupStream) error {
	image := s.machine.Snapshot()
	info := &coordpb.BackupInfo{
		ClusterName: s.cfg.Cluster.ClusterName, ClusterId: image.ClusterID(), Server: s.cfg.Cluster.Name,
		Zxid: uint64(image.Zxid()), Index: image.Index(), Znodes: int64(image.Znodes()), Sessions: int64(image.Sessions()),
		TimeMs: time.Now().UnixMilli(), Digest: image.Digest(), FeatureLevel: image.FeatureLevel(), Version: s.cfg.Version,
	}
	s.machine.View(func(v *fsm.View) {
		c := v.Tree.Counts()
		info.DataBytes = c.DataBytes
		info.Size = c.DataBytes + c.NameBytes + int64(c.Nodes)*encodedZnode
	})
	if err := out.put(&coordpb.BackupReply{Info: info}); err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(out, backupMessage)
	err := image.ForBackup().Encode(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		return err
	}
	return out.put(&coordpb.BackupReply{Sha256: out.sum.Sum(nil)})
}

// encodedZnode is about what a znode takes in a backup beside its name and data,
// in bytes.
const encodedZnode = 40

// backupStream sends what is written to it.
type backupStream struct {
	ctx  context.Context
	send func(*coordpb.BackupReply) error
	sum  hash.Hash
	sent chan struct{} // has room for one: something was sent
}

// Write implements io.Writer.
func (b *backupStream) Write(p []byte) (int, error) {
	b.sum.Write(p)
	if err := b.put(&coordpb.BackupReply{Data: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (b *backupStream) put(m *coordpb.BackupReply) error {
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	if err := b.send(m); err != nil {
		if cause := context.Cause(b.ctx); cause != nil && !errors.Is(cause, context.Canceled) {
			return cause
		}
		return err
	}
	poke(b.sent)
	return nil
}
