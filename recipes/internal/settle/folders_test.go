package settle

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
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
		synctest.Test(t, func(t *testing.T) {
			fc := fakecoord.New(t, 1)
			began, tries := time.Now(), 0
			cl, err := client.Dial(t.Context(), fc.Target(), client.WithGRPCOptions(fc.DialOption()),
				client.WithLogger(slog.New(slog.DiscardHandler)),
				client.WithClock(func() time.Duration { return time.Since(began) + time.Hour }),
				beforeCreate("/a/b", func() {
					if tries++; tries <= c.times {
						fc.Delete("/a")
					}
				}))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			err = Folders(t.Context(), cl, "/a/b")
			there := slices.Equal(fc.Paths("/a"), []string{"/a", "/a/b"})
			if want := c.times < maxFolders; (err == nil) != want || there != want || tries != c.tries {
				t.Errorf("gone %d times: %v after %d tries, there: %v", c.times, err, tries, there)
			}
		})
	}
}
