package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/zxid"
)

// backup is what one server streams, and what it says of it.
func (r *running) backup() (*coordpb.BackupInfo, []byte) {
	r.t.Helper()
	stream, err := coordpb.NewAdminClient(r.conn).Backup(r.t.Context(), &coordpb.BackupRequest{})
	if err != nil {
		r.t.Fatal(err)
	}
	var info *coordpb.BackupInfo
	var data, sum []byte
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			r.t.Fatal(err)
		}
		if m.GetInfo() != nil {
			info = m.Info
		}
		data = append(data, m.GetData()...)
		sum = m.GetSha256()
	}
	if want := sha256.Sum256(data); !bytes.Equal(sum, want[:]) || info == nil {
		r.t.Fatalf("%d bytes with SHA-256 %x, it says %x, %v", len(data), want, sum, info)
	}
	return info, data
}

// restore sends begin and then data in parts, and returns the answer.
func (r *running) restore(begin *coordpb.RestoreBegin, data []byte) *coordpb.RestoreReply {
	r.t.Helper()
	stream, err := coordpb.NewAdminClient(r.conn).Restore(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	err = stream.Send(&coordpb.RestoreRequest{Begin: begin})
	for at := 0; at < len(data) && err == nil; at += 1000 {
		err = stream.Send(&coordpb.RestoreRequest{Data: data[at:min(at+1000, len(data))]})
	}
	reply, err := stream.CloseAndRecv()
	if err != nil {
		r.t.Fatal(err)
	}
	return reply
}

func announce(id string, data []byte) *coordpb.RestoreBegin {
	sum := sha256.Sum256(data)
	return &coordpb.RestoreBegin{Id: id, Size: int64(len(data)), Sha256: sum[:]}
}

// make creates a znode of some size.
func (r *running) make(path string, size int) {
	r.t.Helper()
	reply, err := r.coord().Write(r.t.Context(), &coordpb.WriteRequest{Write: &coordpb.Write{Ops: []*coordpb.Op{{
		Kind: coordpb.Op_KIND_CREATE, Path: path, Data: bytes.Repeat([]byte("x"), size), Node: coordpb.NodeKind_NODE_KIND_PERSISTENT,
	}}}})
	if err != nil || reply.GetError() != nil {
		r.t.Fatalf("create %s: %v, %v", path, err, reply.GetError())
	}
}

func (r *running) has(path string) (ok bool) {
	r.machine.View(func(v *fsm.View) { _, ok = v.Tree.Exists(path) })
	return ok
}

func TestBackupStreamsAndComesBack(t *testing.T) {
	r := start(t, oneServer(t))
	r.make("/a", 600_000)
	r.make("/b", 600_000)
	info, data := r.backup()
	v, err := fsm.ReadBackup(bytes.NewReader(data))
	if err != nil || uint64(v.Zxid) != info.GetZxid() || info.GetZnodes() != 6 || info.GetServer() != "n1" {
		t.Fatalf("%+v, %v", info, err)
	}
	r.make("/c", 1)
	reply := r.restore(announce("one", data), data)
	if reply.GetError() != nil || zxid.ID(reply.GetZxid()) <= v.Zxid || reply.GetZnodes() != 6 {
		t.Fatalf("%+v", reply)
	}
	if !r.has("/a") || !r.has("/b") || r.has("/c") {
		t.Error("another tree than that of the backup")
	}
	r.make("/d", 1)
	again := r.restore(announce("one", data), data)
	if again.GetError() != nil || again.GetZxid() != reply.GetZxid() || !r.has("/d") {
		t.Errorf("a repeat is answered %+v, and was done: %v", again, !r.has("/d"))
	}
}

// What is wrong with a restore is said, and changes nothing.
func TestRestoreThatIsWrongIsRefused(t *testing.T) {
	r := start(t, oneServer(t))
	r.make("/a", 10)
	_, data := r.backup()
	r.make("/b", 10)
	edited := func(edit func(b *coordpb.RestoreBegin)) *coordpb.RestoreBegin {
		b := announce("x", data)
		edit(b)
		return b
	}
	damaged := bytes.Clone(data)
	damaged[len(damaged)/2]++
	for name, c := range map[string]struct {
		begin *coordpb.RestoreBegin
		data  []byte
		want  coordpb.Code
	}{
		"not announced":    {nil, data, coordpb.Code_CODE_MALFORMED},
		"without a sum":    {edited(func(b *coordpb.RestoreBegin) { b.Sha256 = nil }), data, coordpb.Code_CODE_MALFORMED},
		"without an id":    {edited(func(b *coordpb.RestoreBegin) { b.Id = "" }), data, coordpb.Code_CODE_BAD_ARGUMENTS},
		"too short":        {announce("x", data), data[:len(data)-1], coordpb.Code_CODE_BAD_ARGUMENTS},
		"too long":         {announce("x", data[:10]), data, coordpb.Code_CODE_BAD_ARGUMENTS},
		"too large":        {edited(func(b *coordpb.RestoreBegin) { b.Size = 1 << 40 }), data, coordpb.Code_CODE_TOO_LARGE},
		"damaged":          {announce("x", damaged), damaged, coordpb.Code_CODE_BAD_ARGUMENTS},
		"other than named": {announce("x", data), damaged, coordpb.Code_CODE_BAD_ARGUMENTS},
		"not empty":        {edited(func(b *coordpb.RestoreBegin) { b.IntoEmpty = true }), data, coordpb.Code_CODE_NOT_EMPTY},
		"no token":         {edited(func(b *coordpb.RestoreBegin) { b.MinToken = 1<<64 - 1 }), data, coordpb.Code_CODE_BAD_ARGUMENTS},
		"last token":       {edited(func(b *coordpb.RestoreBegin) { b.MinToken = 1<<63 - 1 }), data, coordpb.Code_CODE_BAD_ARGUMENTS},
	} {
		reply := r.restore(c.begin, c.data)
		if reply.GetError().GetCode() != c.want || reply.GetError().GetMessage() == "" {
			t.Errorf("%s: %v", name, reply)
		}
		if !r.has("/b") {
			t.Fatalf("%s: something was changed", name)
		}
	}
	if reply := r.restore(announce("y", data), data); reply.GetError() != nil || r.has("/b") {
		t.Errorf("the one that is right: %v", reply)
	}
}

// A caller that goes away in the middle leaves nothing behind.
func TestRestoreCutShortIsForgotten(t *testing.T) {
	r := start(t, oneServer(t))
	r.make("/a", 1_000_000)
	_, data := r.backup()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := coordpb.NewAdminClient(r.conn).Restore(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*coordpb.RestoreRequest{{Begin: announce("x", data)}, {Data: data[:600_000]}} {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	held := func() int { // bytes in the state: the znode, and what has come of the backup
		var b bytes.Buffer
		if err := r.machine.Snapshot().Encode(&b); err != nil {
			t.Fatal(err)
		}
		return b.Len()
	}
	eventually(t, "a part of it is in the state", func() bool { return held() > 1_200_000 })
	cancel()
	eventually(t, "nothing of it is in the state", func() bool { return held() < 1_200_000 })
	eventually(t, "another one can be restored", func() bool {
		return r.restore(announce("y", data), data).GetError() == nil
	})
}

func TestBackupsAreBounded(t *testing.T) {
	r := start(t, oneServer(t))
	r.backups.Store(maxBackups)
	stream, err := coordpb.NewAdminClient(r.conn).Backup(t.Context(), &coordpb.BackupRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	r.backups.Store(0)
	r.backup()
	eventually(t, "the place is free again", func() bool { return r.backups.Load() == 0 })
}

// deafStream is a stream whose other end reads nothing.
type deafStream struct {
	grpc.ServerStreamingServer[coordpb.BackupReply]
	ctx context.Context //nolint:containedctx // it is one of gRPC's
}

func (d deafStream) Context() context.Context { return d.ctx }

func (d deafStream) Send(*coordpb.BackupReply) error {
	<-d.ctx.Done() // as gRPC's does when the handler has returned
	return d.ctx.Err()
}

func TestReaderOfABackupThatReadsNothingIsCutOff(t *testing.T) {
	r := start(t, oneServer(t))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := r.serveBackup(deafStream{ctx: ctx}, 50*time.Millisecond)
	if status.Code(err) == codes.OK || !bytes.Contains([]byte(err.Error()), []byte("took nothing")) {
		t.Errorf("it ends with %v", err)
	}
}
