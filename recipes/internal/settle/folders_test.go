package settle

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/recipes/internal/rig"
)

// beforeCreate calls f right before a request to create a path is sent.
func beforeCreate(path string, f func()) client.Option {
	return client.WithGRPCOptions(grpc.WithChainStreamInterceptor(
		func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := open(ctx, d, cc, method, opts...)
			return createStream{s, path, f}, err
		}))
}

type createStream struct {
	grpc.ClientStream
	path string
	f    func()
}

func (s createStream) SendMsg(m any) error {
	q, _ := m.(*coordpb.SessionRequest)
	for _, r := range q.GetRequests() {
		for _, op := range r.GetWrite().GetOps() {
			if op.GetPath() == s.path {
				s.f()
			}
		}
	}
	return s.ClientStream.SendMsg(m)
}

// TestFolderThatGoesWhileTheNextIsMadeIsMadeAgain: the cluster removes containers
// that have become empty, at any time; but not for ever.
func TestFolderThatGoesWhileTheNextIsMadeIsMadeAgain(t *testing.T) {
	for _, c := range []struct{ times, tries int }{{0, 1}, {1, 2}, {3, 4}, {1000, maxFolders}} {
		rig.Fake(t, 1, func(t *testing.T, fc *fakecoord.Cluster) {
			tries := 0
			cl := rig.Connect(t, fc, beforeCreate("/a/b", func() {
				if tries++; tries <= c.times {
					fc.Delete("/a")
				}
			}))
			err := Folders(t.Context(), cl, "/a/b")
			there := slices.Equal(fc.Paths("/a"), []string{"/a", "/a/b"})
			if want := c.times < maxFolders; (err == nil) != want || there != want || tries != c.tries {
				t.Errorf("gone %d times: %v after %d tries, there: %v", c.times, err, tries, there)
			}
		})
	}
}
