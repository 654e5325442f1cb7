package wire

import (
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/zxid"
)

// MaxFrameBytes is the longest frame that a server takes from a client, the
// default of ZooKeeper's jute.maxbuffer. Replies have no limit.
const MaxFrameBytes = 0xfffff

// PasswordBytes is the length of a session's password in a reply.
const PasswordBytes = 16

// ConnectRequest is the first message of a connection, which has no header.
type ConnectRequest struct {
	ProtocolVersion int32
	LastZxid        zxid.ID       // largest that the client has seen
	Timeout         time.Duration // asked for, whole milliseconds; may be zero or negative
	Session         session.ID    // 0: a new one
	Password        []byte
	ReadOnly        bool // may be served by a server without a quorum
	// HasReadOnly says whether the client sent the byte at all. One that did
	// not must get none back.
	HasReadOnly bool
}

// Append encodes the request.
func (c *ConnectRequest) Append(dst []byte) []byte {
	dst = appendInt(dst, c.ProtocolVersion)
	dst = appendLong(dst, int64(c.LastZxid))
	dst = appendInt(dst, int32(c.Timeout/time.Millisecond))
	dst = appendLong(dst, int64(c.Session))
	dst = appendBuffer(dst, c.Password)
	if c.HasReadOnly {
		dst = appendBool(dst, c.ReadOnly)
	}
	return dst
}

// Decode reads the request.
func (c *ConnectRequest) Decode(b []byte) error {
	r := reader{b: b}
	*c = ConnectRequest{
		ProtocolVersion: r.int(), LastZxid: zxid.ID(r.long()), Timeout: time.Duration(r.int()) * time.Millisecond,
		Session: session.ID(r.long()), Password: r.buffer(),
	}
	if r.err == nil && len(r.b) > 0 {
		c.HasReadOnly, c.ReadOnly = true, r.bool()
	}
	return r.err
}

// ConnectResponse answers a ConnectRequest. A zero timeout tells the client that
// its session is over.
type ConnectResponse struct {
	ProtocolVersion int32
	Timeout         time.Duration // granted, whole milliseconds
	Session         session.ID
	Password        []byte
	ReadOnly        bool // the server has no quorum
	HasReadOnly     bool // as in the request
}

// Expired is the answer to a client whose session is over, or whose password is
// wrong.
func Expired(hasReadOnly bool) *ConnectResponse {
	return &ConnectResponse{Password: make([]byte, PasswordBytes), HasReadOnly: hasReadOnly}
}

// Append encodes the response.
func (c *ConnectResponse) Append(dst []byte) []byte {
	dst = appendInt(dst, c.ProtocolVersion)
	dst = appendInt(dst, int32(c.Timeout/time.Millisecond))
	dst = appendLong(dst, int64(c.Session))
	dst = appendBuffer(dst, c.Password)
	if c.HasReadOnly {
		dst = appendBool(dst, c.ReadOnly)
	}
	return dst
}

// Decode reads the response.
func (c *ConnectResponse) Decode(b []byte) error {
	r := reader{b: b}
	*c = ConnectResponse{
		ProtocolVersion: r.int(), Timeout: time.Duration(r.int()) * time.Millisecond, Session: session.ID(r.long()), Password: r.buffer(),
	}
	if r.err == nil && len(r.b) > 0 {
		c.HasReadOnly, c.ReadOnly = true, r.bool()
	}
	return r.err
}
