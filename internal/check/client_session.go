package check

import (
	"context"
	"errors"
	"time"

	"github.com/coordd/coord/client"
)

// follow records a session's beginning, and its end when it comes.
func (c *Client) follow(s *client.Session) {
	now := c.h.now()
	c.h.Add(Record{Kind: Opened, Client: c.name, Session: s.ID(), Begin: now, End: now, Timeout: s.Timeout()})
	c.h.wg.Go(func() {
		<-s.Context().Done()
		var e *client.SessionError
		if !errors.As(context.Cause(s.Context()), &e) {
			return
		}
		r := c.sessionEnd(s, e.Reason)
		c.mu.Lock()
		closing := c.closing
		c.mu.Unlock()
		if e.Reason == client.ByClient {
			if closing {
				return // Close records it
			}
			r.Outcome = Unknown
		}
		r.Detail = e.Error()
		c.h.Add(r)
	})
}

// sessionEnd is the record of a session's end that was noticed now.
func (c *Client) sessionEnd(s *client.Session, reason client.Reason) Record {
	now := c.h.now()
	r := Record{
		Kind: Ended, Client: c.name, Session: s.ID(), Begin: now, End: now, Outcome: Done,
		Timeout: s.Timeout(), Deadline: c.h.deadline(s), Reason: ByOther,
	}
	switch reason {
	case client.ByClient:
		r.Reason = ByClient
	case client.Silent, client.AuthLost:
		r.Reason = BySilent
	case client.Restore:
		r.Reason = ByRestore
	default:
	}
	return r
}

// deadline is a session's deadline on the history's clock: that of a process that
// was paused may lie behind us.
func (h *History) deadline(s *client.Session) time.Duration {
	return h.now() - (s.Now() - s.DeadlineAt())
}

// Close ends the session, and the client.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	s := c.Session()
	r := c.sessionEnd(s, client.ByClient)
	over := s.Context().Err() != nil
	err := c.Client.Close()
	if over || s.ID() == 0 {
		return err // its end was recorded before
	}
	r.End = c.h.now()
	if err != nil {
		r.Outcome, r.Detail = Unknown, err.Error()
	}
	c.h.Add(r)
	return err
}

// Silent records that nothing is heard of the client from now on: it was cut off
// for good, or killed. Its session must end within its timeout and the bound.
func (c *Client) Silent() {
	r := c.begin(Silent, "")
	r.End, r.Timeout = r.Begin, c.Session().Timeout()
	c.h.Add(r)
}

// Killed records that somebody else is about to end the session: an
// administrator, a take-over, a restore.
func (c *Client) Killed() {
	r := c.begin(Killed, "")
	r.End = r.Begin
	c.h.Add(r)
}
