package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Client is safe for concurrent use. It owns one Session.
type Client struct {
	core    *core
	session *Session
	view    bool // made by Session.Client: Close ends the session only
}

const (
	opDial = "dial"
	opTxn  = "txn"
)

// Dial connects, opens a session and returns once the cluster has accepted it.
// target is "host1:7420,host2:7420" or a URL such as
// "coord://host1,host2/chroot?session=10s&name=billing" (scheme coords = TLS).
// Options win over the URL. ctx bounds the call only: cancelling it later does
// not end the session.
//
// Dial goes on trying until ctx ends, except when an answer makes it pointless
// (wrong credentials, a certificate that does not fit, no coordd server) or with
// [FailFast]. Its error lists each endpoint and what came back.
func Dial(ctx context.Context, target string, opts ...Option) (*Client, error) {
	c, err := prepare(target, opts)
	if err != nil {
		return nil, badArguments(opDial, err)
	}
	s, err := newSession(c, c.opts.session(), c.opts.sessionless)
	if err == nil {
		err = s.opened(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return &Client{core: c, session: s}, nil
}

func prepare(target string, opts []Option) (*core, error) {
	endpoints, fromURL, err := parseTarget(target)
	if err != nil {
		return nil, err
	}
	o, err := newOptions(append(fromURL, opts...))
	if err != nil {
		return nil, err
	}
	return newCore(endpoints, o)
}

// opened waits until the cluster has accepted the session. If it does not, the
// session is given up.
func (s *Session) opened(ctx context.Context) error {
	began := time.Now()
	var err error
	select {
	case <-s.ready:
		return nil
	case <-s.finished:
	case <-ctx.Done():
		tried := s.attempts()
		err = &Error{
			Op: opDial, Err: &interrupted{ctx.Err(), ErrUnavailable}, Tried: tried, Index: -1,
			Detail: fmt.Sprintf("no server has taken the session in %s", time.Since(began).Round(time.Millisecond)),
		}
	}
	s.finish(ByClient, "")
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = s.failure
	}
	if err == nil {
		err = &Error{Op: opDial, Err: s.callError(), Index: -1}
	}
	return err
}

// Session is the client's own session.
func (c *Client) Session() *Session { return c.session }

// NewSession opens another session over the same servers, with a life of its
// own. [Session.Client] makes calls in it. It ends when it is closed, at the
// latest with the client.
func (c *Client) NewSession(ctx context.Context, opts ...Option) (*Session, error) {
	o := *c.core.opts
	o.identity, o.listener = "", nil
	for _, opt := range opts {
		opt(&o)
	}
	if err := o.validate(); err != nil {
		return nil, badArguments(opDial, err)
	}
	s, err := newSession(c.core, o.session(), false)
	if err != nil {
		return nil, &Error{Op: opDial, Err: err, Index: -1}
	}
	if err := s.opened(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Close ends the session, so that its ephemeral znodes go now, and all that
// belongs to the client. It waits a few seconds at most and is idempotent. An
// error says that the cluster could not be told; the session then expires by
// itself.
func (c *Client) Close() error {
	if !c.view {
		return c.core.close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	return c.session.Close(ctx)
}

// ClusterID names the cluster for ever; two clusters of one name differ in it.
func (c *Client) ClusterID() string { return c.core.cluster("") }

// LastZxid is the newest transaction that this client has seen.
func (c *Client) LastZxid() Zxid { return Zxid(c.core.seen.Load()) }

// Chroot is the path that this client's paths are relative to, "/" for none.
func (c *Client) Chroot() string {
	return chroot(c.core.opts.chroot).full("/")
}

func (c *Client) root() chroot { return chroot(c.core.opts.chroot) }
