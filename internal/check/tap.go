package check

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
)

// Tap makes a client's streams be looked at message by message: the client hides in
// what order it is told things, where that does no harm to it. The reply that
// registers a watch comes before the watch's events; an event comes before anything
// that shows its transaction, and is not told again; a stream does not go back.
func (h *History) Tap() client.Option {
	return client.WithGRPCOptions(grpc.WithChainStreamInterceptor(
		func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := open(ctx, desc, cc, method, opts...)
			if err != nil || method != coordpb.Coord_Session_FullMethodName {
				return s, err
			}
			return &tappedStream{ClientStream: s, order: streamOrder{report: h.broken}}, nil
		}))
}

// broken records a rule that a stream has broken.
func (h *History) broken(text string) {
	now := h.now()
	h.Add(Record{Kind: Broken, Begin: now, End: now, Detail: text})
}

func checkStreams(v *view) {
	for _, r := range v.all {
		if r.Kind == Broken {
			v.report(RuleStream, "", []Record{r}, "%s", r.Detail)
		}
	}
}

type tappedStream struct {
	grpc.ClientStream
	order streamOrder
}

// SendMsg implements grpc.ClientStream.
func (s *tappedStream) SendMsg(m any) error {
	if q, ok := m.(*coordpb.SessionRequest); ok {
		s.order.asked(q)
	}
	return s.ClientStream.SendMsg(m)
}

// RecvMsg implements grpc.ClientStream.
func (s *tappedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if a, ok := m.(*coordpb.SessionReply); ok && err == nil {
		s.order.told(a)
	}
	return err
}

// streamOrder holds one stream to its rules. It is safe for concurrent use.
type streamOrder struct {
	report func(string)

	mu      sync.Mutex        // guards below
	watches map[uint64]*order // by the id of the registration
	shown   uint64            // newest transaction that messages before this one have shown
}

// order is that of one watch.
type order struct {
	registered bool
	from       uint64 // transaction of the reply that registered it
	zxid       uint64 // of the newest event
	index      uint32
}

// asked notes what watches are asked for.
func (o *streamOrder) asked(q *coordpb.SessionRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.watches == nil {
		o.watches = map[uint64]*order{}
	}
	for _, r := range q.GetRequests() {
		if r.GetWatch() != nil {
			o.watches[r.GetId()] = &order{}
		}
	}
}

// told looks at one message: first the replies that register watches, then the
// events, then the rest.
func (o *streamOrder) told(m *coordpb.SessionReply) {
	o.mu.Lock()
	defer o.mu.Unlock()
	shown := max(o.shown, m.GetZxid())
	if m.GetZxid() < o.shown {
		o.say("a message of %#x comes behind one of %#x", m.GetZxid(), o.shown)
	}
	for _, r := range m.GetReplies() {
		if w := o.watches[r.GetId()]; w != nil && r.GetSeq() == 0 && !w.registered {
			w.registered, w.from = true, r.GetZxid()
			if r.GetError() != nil {
				delete(o.watches, r.GetId())
			}
		}
		shown = max(shown, r.GetZxid())
	}
	for _, e := range m.GetEvents() {
		if w := o.watches[e.GetWatchId()]; w != nil {
			o.event(w, e)
		}
	}
	o.shown = shown
}

// event looks at one event.
func (o *streamOrder) event(w *order, e *coordpb.Event) {
	z := e.GetZxid()
	switch e.GetType() {
	case coordpb.EventType_EVENT_PRESENT, coordpb.EventType_EVENT_ABSENT, coordpb.EventType_EVENT_RESYNC:
		return
	default:
	}
	switch {
	case !w.registered:
		o.say("an event of %#x at %s comes before the reply that its watch is registered", z, e.GetPath())
	case z > w.from && z <= o.shown:
		o.say("an event of %#x at %s comes behind what shows %#x", z, e.GetPath(), o.shown)
	case z < w.zxid || z == w.zxid && e.GetIndex() <= w.index && w.zxid != 0:
		o.say("an event of %#x, %d at %s comes behind one of %#x, %d", z, e.GetIndex(), e.GetPath(), w.zxid, w.index)
	}
	w.zxid, w.index = z, e.GetIndex()
}

func (o *streamOrder) say(format string, args ...any) { o.report(fmt.Sprintf(format, args...)) }
