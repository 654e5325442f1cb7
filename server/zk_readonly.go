package server

import (
	"errors"
	"time"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/wire"
)

// zkCutOffAfter is from when on a server that hears of no majority counts as cut
// off. Elections take less.
const zkCutOffAfter = 3 * time.Second

// cutOff says whether this server has lost the majority.
func (s *Server) cutOff() bool { return s.node.StaleAge() > zkCutOffAfter }

// errReadOnly ends connections when the server becomes read-only, or stops to be.
var errReadOnly = errors.New("the server has lost or found the majority")

// errNeedsMajority is returned to a client that does not want a read-only server.
var errNeedsMajority = errors.New("this server is read-only at the moment")

// readOnlySession lets a client look at what this server knows. Nothing of it is
// known to the cluster: a session that is shown keeps the life it has, and a new one
// has none.
func (c *zkConn) readOnlySession(q *wire.ConnectRequest) (*fsm.SessionInfo, error) {
	if !q.ReadOnly {
		return nil, errNeedsMajority
	}
	info := &fsm.SessionInfo{ID: q.Session, Timeout: c.s.zkTimeout(q.Timeout)}
	if q.Session == 0 {
		nonce, err := newNonce()
		if err != nil {
			return nil, err
		}
		// Below every id that the log can give, and never 0.
		info.ID = session.ID(uint32(nonce[0])<<16|uint32(nonce[1])<<8|uint32(nonce[2])) + 1
		copy(info.Secret[:], nonce[:])
	} else {
		if len(q.Password) != len(info.Secret) {
			return nil, session.ErrWrongSecret
		}
		if err := c.s.mayAttach(q.Session, session.Secret(q.Password)); err != nil {
			return nil, err
		}
		info.Secret = session.Secret(q.Password)
	}
	c.readOnly.Store(true)
	return info, nil
}

// refusedReadOnly says whether a read-only server refuses the request.
func (c *zkConn) refusedReadOnly(r *zkRequest) bool {
	if !c.readOnly.Load() || r.refusal != wire.OK {
		return false
	}
	switch r.Type {
	case wire.Auth, wire.CloseSession:
		return false
	default:
		class := r.class()
		return class == zkWrite || class == zkSync
	}
}
