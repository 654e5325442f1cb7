package renewal

import (
	"context"
	"errors"

	"github.com/coordd/coord/client"
)

// Sessions is a row of sessions: each is opened when the one before it has
// expired, with its timeout and name. The first is the client's own. One
// goroutine at a time.
type Sessions struct {
	c    *client.Client
	live *client.Session
	ours bool // live was opened here
}

// NewSessions begins with the session of c.
func NewSessions(c *client.Client) *Sessions { return &Sessions{c: c, live: c.Session()} }

// Current is the newest session. It may have ended.
func (s *Sessions) Current() *client.Session { return s.live }

// adopt goes on with a session that the caller has opened and will close.
func (s *Sessions) adopt(other *client.Session) {
	if other != s.live {
		s.live, s.ours = other, false
	}
}

// Live returns the newest session, or a new one if that has expired. If the
// client or its session was closed on purpose the error matches
// client.ErrClosed: then nobody wants to be seen alive any more.
func (s *Sessions) Live(ctx context.Context) (*client.Session, error) {
	if s.live.Context().Err() == nil {
		return s.live, nil
	}
	return s.Next(ctx)
}

// Next opens a session in the place of the newest one, which has expired. The
// error for one that was closed on purpose is as for Live.
func (s *Sessions) Next(ctx context.Context) (*client.Session, error) {
	if cause := context.Cause(s.live.Context()); errors.Is(cause, client.ErrClosed) {
		return nil, cause
	}
	opts := []client.Option{client.WithSessionName(s.live.Name())}
	if t := s.live.Timeout(); t > 0 {
		opts = append(opts, client.WithSessionTimeout(t))
	}
	next, err := s.c.NewSession(ctx, opts...)
	if err != nil {
		return nil, err
	}
	s.live, s.ours = next, true
	return next, nil
}

// Close ends the newest session if it was opened here. It works with a ctx that
// is done, and returns an error if the cluster could not be told.
func (s *Sessions) Close(ctx context.Context) error {
	if !s.ours {
		return nil
	}
	return s.live.Close(ctx)
}
