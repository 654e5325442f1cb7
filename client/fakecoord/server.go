package fakecoord

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/coordd/coord/api/coordpb"
)

// Server is one server of the cluster.
type Server struct {
	coordpb.UnimplementedCoordServer
	c    *Cluster
	name string

	// mu guards the rest.
	mu     sync.Mutex
	lis    *bufconn.Listener
	grpc   *grpc.Server
	served sync.WaitGroup
	muted  bool
	flush  chan struct{} // closed when muted ends
	refuse *coordpb.Error
	deaf   bool // heartbeats are not answered

	notNow coordpb.Code // guarded by c.mu: requests get this for an answer
}

// Start serves, after Stop too.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lis != nil {
		return
	}
	s.lis = bufconn.Listen(1 << 20)
	s.grpc = grpc.NewServer(grpc.MaxRecvMsgSize(4 << 20))
	coordpb.RegisterCoordServer(s.grpc, s)
	srv, lis := s.grpc, s.lis
	s.served.Go(func() { _ = srv.Serve(lis) })
}

// Stop breaks all connections and refuses new ones, as a killed process does.
func (s *Server) Stop() {
	s.mu.Lock()
	srv := s.grpc
	s.lis, s.grpc = nil, nil
	s.unmuteLocked()
	s.mu.Unlock()
	if srv != nil {
		s.CutAll()
		srv.Stop()
		s.served.Wait()
	}
}

// Mute makes the server silent, as a stopped process is: what it would send
// waits until Unmute.
func (s *Server) Mute() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.muted {
		s.muted, s.flush = true, make(chan struct{})
	}
}

// Unmute ends Mute.
func (s *Server) Unmute() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unmuteLocked()
}

func (s *Server) unmuteLocked() {
	if s.muted {
		s.muted = false
		close(s.flush)
	}
}

// Refuse makes the server answer each Hello with this error; nil ends it.
func (s *Server) Refuse(e *coordpb.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = e
}

// IgnoreBeats makes the server count no heartbeat while on is true.
func (s *Server) IgnoreBeats(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = on
}

// NotNow makes the server refuse each request and write with this code, without doing it
// and without taking its number; CODE_OK ends it.
func (s *Server) NotNow(code coordpb.Code) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.notNow = code
}

// CutAll breaks the session streams of this server.
func (s *Server) CutAll() {
	s.each(func(st *stream) { st.cut(status.Error(codes.Unavailable, "connection reset")) })
}

// Goodbye ends the session streams of this server with a reason.
func (s *Server) Goodbye(reason coordpb.Code) {
	s.each(func(st *stream) { st.goodbye(code(reason, "")) })
}

func (s *Server) each(f func(*stream)) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for st := range s.c.streams {
		if st.server == s {
			f(st)
		}
	}
}

func (s *Server) listener() *bufconn.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lis
}

// hold waits while the server is mute.
func (s *Server) hold(ctx context.Context) {
	for {
		s.mu.Lock()
		muted, flush := s.muted, s.flush
		s.mu.Unlock()
		if !muted {
			return
		}
		select {
		case <-flush:
		case <-ctx.Done():
			return
		}
	}
}

// Session implements coordpb.CoordServer.
func (s *Server) Session(g grpc.BidiStreamingServer[coordpb.SessionRequest, coordpb.SessionReply]) error {
	first, err := g.Recv()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(g.Context())
	defer cancel(nil)
	st := &stream{server: s, c: s.c, watches: map[uint64]*watch{}, wake: make(chan struct{}, 1), cancel: cancel}
	welcome := s.greet(st, first.GetHello())
	s.hold(ctx)
	if err := g.Send(&coordpb.SessionReply{Welcome: welcome, Zxid: s.c.now()}); err != nil || welcome.Error != nil {
		return err
	}
	s.c.mu.Lock()
	s.c.streams[st] = struct{}{}
	s.c.mu.Unlock()
	defer func() {
		s.c.mu.Lock()
		defer s.c.mu.Unlock()
		delete(s.c.streams, st)
	}()
	var sender sync.WaitGroup
	sender.Go(func() { st.send(ctx, g) })
	go func() { // ends with the stream, at the latest when the server stops
		for {
			m, err := g.Recv()
			if err != nil {
				cancel(err)
				return
			}
			st.requests(m)
		}
	}()
	<-ctx.Done()
	sender.Wait()
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if st.bye {
		return nil
	}
	return context.Cause(ctx)
}

func (c *Cluster) now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.zxid
}

// greet opens or attaches.
func (s *Server) greet(st *stream, h *coordpb.Hello) *coordpb.Welcome {
	s.mu.Lock()
	refuse := s.refuse
	s.mu.Unlock()
	if refuse != nil {
		return &coordpb.Welcome{Error: refuse, Server: s.name}
	}
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &coordpb.Welcome{ClusterId: "fake", ClusterName: "fake", Server: s.name, Limits: c.limits}
	if h.GetClusterId() != "" && h.ClusterId != "fake" {
		w.Error = code(coordpb.Code_CODE_WRONG_CLUSTER, "")
		return w
	}
	if h.GetMode() == coordpb.Hello_MODE_NONE {
		return w
	}
	for c.frozen {
		c.thawed.Wait()
	}
	sess, current, bad := c.enter(h)
	if bad != coordpb.Code_CODE_OK {
		w.Error, w.Current, w.NextSeq = code(bad, ""), current, c.nexts[h.SessionId]
		w.Error.SessionEnd = c.ends[h.SessionId]
		return w
	}
	sess.server, sess.heard = s.name, time.Now()
	st.session, st.number = sess, sess.connection
	w.SessionId, w.Secret, w.Connection = sess.id, []byte(sess.secret), sess.connection
	w.TimeoutMs, w.NextSeq = sess.timeout.Milliseconds(), sess.next
	return w
}

func (c *Cluster) enter(h *coordpb.Hello) (s *session, current uint64, bad coordpb.Code) {
	if h.Mode == coordpb.Hello_MODE_ATTACH {
		c.counts.Attaches++
		s = c.sessions[h.SessionId]
		switch {
		case s == nil:
			return nil, 0, coordpb.Code_CODE_SESSION_EXPIRED
		case s.secret != string(h.Secret):
			return nil, 0, coordpb.Code_CODE_AUTH_FAILED
		case h.Connection < s.connection:
			return nil, 0, coordpb.Code_CODE_SESSION_MOVED
		}
		s.connection = h.Connection
		return s, 0, coordpb.Code_CODE_OK
	}
	if id, ok := c.nonces[string(h.Nonce)]; ok {
		if s = c.sessions[id]; s == nil {
			return nil, 0, coordpb.Code_CODE_SESSION_EXPIRED
		}
		return s, 0, coordpb.Code_CODE_OK
	}
	for _, o := range c.sessions {
		if h.Identity != "" && o.identity == h.Identity {
			if h.TakeOver != o.id {
				return nil, o.id, coordpb.Code_CODE_IDENTITY_IN_USE
			}
			c.endLocked(o, coordpb.Cause_CAUSE_REQUEST, coordpb.SessionEnd_SESSION_END_TAKEN_OVER)
		}
	}
	c.counts.Opens++
	c.zxid++
	s = &session{
		id: c.zxid, secret: "secret of " + h.Name, connection: 1, next: 1, identity: h.Identity,
		results: map[uint64]*coordpb.Reply{}, timeout: time.Duration(h.TimeoutMs) * time.Millisecond,
	}
	if s.timeout == 0 {
		s.timeout = c.Timeout
	}
	c.sessions[s.id], c.nonces[string(h.Nonce)] = s, s.id
	return s, 0, coordpb.Code_CODE_OK
}

// Write implements coordpb.CoordServer.
func (s *Server) Write(ctx context.Context, r *coordpb.WriteRequest) (*coordpb.WriteReply, error) {
	c := s.c
	c.mu.Lock()
	if c.full && !takesAway(r.Write) {
		defer c.mu.Unlock()
		return &coordpb.WriteReply{Error: code(coordpb.Code_CODE_DISK_FULL, "no room")}, nil
	}
	if s.notNow != coordpb.Code_CODE_OK {
		defer c.mu.Unlock()
		return &coordpb.WriteReply{Error: code(s.notNow, "")}, nil
	}
	out, known := c.requests[r.RequestId]
	if known && r.RequestId != "" {
		out = proto.Clone(out).(*coordpb.WriteReply)
		out.RepeatedAnswer = true
	} else {
		done := c.apply(r.Write, nil)
		out = &coordpb.WriteReply{Zxid: done.Zxid, Error: done.Error, Results: done.Results, ValidUntilMs: 1}
		c.requests[r.RequestId] = out
	}
	act := Pass
	if c.onReply != nil {
		act = c.onReply(s.name, &coordpb.Reply{Zxid: out.Zxid})
	}
	c.mu.Unlock()
	s.hold(ctx)
	if act != Pass {
		return nil, status.Error(codes.Unavailable, "connection reset")
	}
	return out, nil
}

// Read implements coordpb.CoordServer.
func (s *Server) Read(ctx context.Context, r *coordpb.ReadRequest) (*coordpb.ReadReply, error) {
	s.c.mu.Lock()
	res, e := s.c.read(r.Read, 0)
	z := s.c.zxid
	s.c.mu.Unlock()
	s.hold(ctx)
	return &coordpb.ReadReply{Zxid: z, Error: e, Read: res}, nil
}

// covers says whether path is root or below it.
func covers(root, path string) bool {
	return path == root || root == "/" || strings.HasPrefix(path, root+"/")
}
