package sim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/check"
	"github.com/coordd/coord/zxid"
)

// backup is the state of a cluster, as coordctl has it in a file.
type backup struct {
	state []byte
	sum   [sha256.Size]byte
	zxid  zxid.ID
}

// save takes a backup.
func save(ctx context.Context, a coordpb.AdminClient) (*backup, error) {
	stream, err := a.Backup(ctx, &coordpb.BackupRequest{})
	if err != nil {
		return nil, err
	}
	b, told := &backup{}, []byte(nil)
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if m.GetInfo() != nil {
			b.zxid = zxid.ID(m.GetInfo().GetZxid())
		}
		b.state = append(b.state, m.GetData()...)
		told = append(told, m.GetSha256()...)
	}
	if b.sum = sha256.Sum256(b.state); !bytes.Equal(told, b.sum[:]) {
		return nil, fmt.Errorf("a backup of %d bytes has the sum %x, not %x", len(b.state), b.sum, told)
	}
	return b, nil
}

// restore puts a backup in the place of the state, as often as it takes, and records
// that.
func (w *world) restore(ctx context.Context, a coordpb.AdminClient, b *backup) (*coordpb.RestoreReply, error) {
	begin := &coordpb.RestoreBegin{Id: "one", Size: int64(len(b.state)), Sha256: b.sum[:]}
	r := check.Record{Kind: check.Restored, Client: "operator", Begin: w.history.Now()}
	for {
		reply, err := restoreOnce(ctx, a, b, begin)
		if err == nil && reply.GetError() == nil {
			r.End, r.Outcome, r.Zxid = w.history.Now(), check.Done, zxid.ID(reply.GetZxid())
			w.history.Add(r)
			return reply, nil
		}
		if err == nil {
			err = fmt.Errorf("%s: %s", reply.GetError().GetCode(), reply.GetError().GetMessage())
		}
		w.note("nothing was restored yet: %v", err)
		again := errors.Is(err, client.ErrUnavailable) || status.Code(err) == codes.Unavailable || reply.GetError() != nil
		if !again || !w.sleep(w.cfg.paces(2)) {
			return nil, err
		}
	}
}

func restoreOnce(ctx context.Context, a coordpb.AdminClient, b *backup, begin *coordpb.RestoreBegin) (*coordpb.RestoreReply, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := a.Restore(ctx)
	if err != nil {
		return nil, err
	}
	m := &coordpb.RestoreRequest{Begin: begin}
	for rest := b.state; ; {
		n := min(len(rest), 64<<10)
		m.Data, rest = rest[:n], rest[n:]
		if stream.Send(m) != nil || len(rest) == 0 {
			break // the reply says why
		}
		m = &coordpb.RestoreRequest{}
	}
	return stream.CloseAndRecv()
}
