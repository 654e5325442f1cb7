package test

import (
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/coordtest"
)

// adminOf is an operator's connection to a cluster of coordtest.
func adminOf(t *testing.T, c *coordtest.Cluster) coordpb.AdminClient {
	t.Helper()
	a, err := client.NewAdmin(c.Target(), c.DialOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a.At(a.Endpoints()[0])
}

// saveBackup is the state that server 0 streams.
func saveBackup(t *testing.T, a coordpb.AdminClient) []byte {
	t.Helper()
	stream, err := a.Backup(t.Context(), &coordpb.BackupRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return data
		}
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, m.GetData()...)
	}
}

// beginRestore announces data.
func beginRestore(t *testing.T, a coordpb.AdminClient, id string, data []byte) grpc.ClientStreamingClient[coordpb.RestoreRequest, coordpb.RestoreReply] {
	t.Helper()
	stream, err := a.Restore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	if err := stream.Send(&coordpb.RestoreRequest{Begin: &coordpb.RestoreBegin{Id: id, Size: int64(len(data)), Sha256: sum[:]}}); err != nil {
		t.Fatal(err)
	}
	return stream
}

func sendParts(stream grpc.ClientStreamingClient[coordpb.RestoreRequest, coordpb.RestoreReply], data []byte) {
	for part := range slices.Chunk(data, 100_000) {
		if stream.Send(&coordpb.RestoreRequest{Data: part}) != nil {
			return // the reply says why
		}
	}
}

// The quorum goes away in the middle of a restore: it ends within its time and says
// what holds, the tree stays as it is, and when there is a quorum again another one
// can be made, though nobody has taken the first one back.
func TestRestoreThatLosesItsQuorumEndsAndChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordtest.StartCluster(t, 3)
		cl := c.Dial()
		create := func(path string, size int) {
			if _, err := cl.Create(t.Context(), path, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range []string{"/a", "/b", "/c", "/d"} {
			create(path, 900_000)
		}
		a := adminOf(t, c)
		data := saveBackup(t, a)
		create("/later", 0)

		stream := beginRestore(t, a, "first", data)
		sendParts(stream, data[:len(data)/2])
		time.Sleep(5 * time.Second) // that much is in the state of every server
		heal := []func(){c.Isolate(1), c.Isolate(2)}
		begin := time.Now()
		sendParts(stream, data[len(data)/2:])
		reply, err := stream.CloseAndRecv()
		took := time.Since(begin)
		if err != nil || reply.GetError().GetCode() != coordpb.Code_CODE_UNAVAILABLE || !strings.Contains(reply.GetError().GetMessage(), "nothing was changed") {
			t.Errorf("without a quorum: %v, %v", reply, err)
		}
		if took > time.Minute {
			t.Errorf("it took %v to be told so", took)
		}
		for _, f := range heal {
			f()
		}
		c.AwaitLeader()
		if len(c.Paths("/later")) != 1 {
			t.Error("something was changed without a quorum")
		}

		// The server that was asked dies with a second one half brought.
		stream = beginRestore(t, a, "second", data)
		sendParts(stream, data[:len(data)/2])
		time.Sleep(5 * time.Second)
		c.Restart(0)
		if _, err := stream.CloseAndRecv(); err == nil {
			t.Error("the server was killed, and answered")
		}
		if len(c.Paths("/later")) != 1 {
			t.Error("something was changed by a restore whose server died")
		}

		stream = beginRestore(t, a, "third", data)
		sendParts(stream, data)
		if reply, err := stream.CloseAndRecv(); err != nil || reply.GetError() != nil {
			t.Fatalf("the next one: %v, %v", reply, err)
		}
		if paths := strings.Join(c.Paths("/"), " "); !strings.Contains(paths, "/d") || strings.Contains(paths, "/later") {
			t.Errorf("the tree has %s", paths)
		}
	})
}
