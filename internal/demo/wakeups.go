package demo

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
)

// wakeups counts the events that servers send to the sessions of this process,
// where they arrive: below the client, which shows only what it asked for. It is
// safe for concurrent use.
type wakeups struct {
	mu      sync.Mutex // guards what follows
	events  map[uint64]int
	watched map[string]int
	resyncs int
}

func newWakeups() *wakeups {
	return &wakeups{events: map[uint64]int{}, watched: map[string]int{}}
}

// of says how many sessions have heard of a transaction, its maker not counted.
func (w *wakeups) of(z client.Zxid) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[uint64(z)]
}

// watchers says how often somebody else than the owner of the znode at path has
// begun to watch it.
func (w *wakeups) watchers(path string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watched[path]
}

// missed says how many watches were told that they may have missed something.
func (w *wakeups) missed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.resyncs
}

// option has a client's streams counted.
func (w *wakeups) option() client.Option {
	return client.WithGRPCOptions(grpc.WithChainStreamInterceptor(w.intercept))
}

func (w *wakeups) intercept(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	next grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := next(ctx, d, cc, method, opts...)
	if err != nil || method != coordpb.Coord_Session_FullMethodName {
		return s, err
	}
	return &countedStream{ClientStream: s, w: w}, nil
}

// countedStream is the stream of one session over one connection. Messages are
// received by one goroutine.
type countedStream struct {
	grpc.ClientStream
	w       *wakeups
	session uint64 // 0 before the welcome
}

// RecvMsg counts what it received.
func (s *countedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if reply, ok := m.(*coordpb.SessionReply); ok && err == nil {
		if reply.Welcome != nil {
			s.session = reply.Welcome.SessionId
		}
		s.w.count(s.session, reply.Events)
	}
	return err
}

func (w *wakeups) count(session uint64, events []*coordpb.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events {
		switch e.Type {
		case coordpb.EventType_EVENT_RESYNC:
			w.resyncs++
		case coordpb.EventType_EVENT_PRESENT:
			if e.Stat.GetEphemeralOwner() != session {
				w.watched[e.Path]++
			}
		case coordpb.EventType_EVENT_ABSENT:
		default:
			if e.Session != session { // the maker of a change needs no waking
				w.events[e.Zxid]++
			}
		}
	}
}
