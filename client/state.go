package client

import (
	"errors"
	"fmt"
	"time"
)

// State is where a session stands. Expired and Closed are final.
type State uint8

const (
	// Connecting: the cluster has not accepted the session yet.
	Connecting State = iota
	// Connected: a server serves the session.
	Connected
	// Suspended: no server serves the session at the moment, and its deadline
	// is still ahead. Calls wait for as long as their contexts let them.
	Suspended
	// Expired: the session is over against this client's will. Its ephemeral
	// znodes are gone or about to go; a new session is for the application to
	// open.
	Expired
	// Closed: this client has ended the session.
	Closed
)

func (s State) String() string {
	switch s {
	case Connecting:
		return "connecting"
	case Connected:
		return "connected"
	case Suspended:
		return "suspended"
	case Expired:
		return "expired"
	case Closed:
		return "closed"
	default:
		return "unknown"
	}
}

// Reason says why a session ended.
type Reason string

// Reasons.
const (
	ByClient Reason = "closed by the client"
	// Silent: the cluster heard nothing for the timeout, or this client heard
	// nothing and must assume so.
	Silent Reason = "silent for the timeout"
	// Killed: ended by an administrator, or taken over by a newer session of
	// the same identity.
	Killed Reason = "ended by another"
	// AuthLost: the deadline passed while servers refused this client's
	// credentials.
	AuthLost Reason = "no longer authenticated"
	// Restore: the cluster does not know the session any more: a backup was
	// restored, or the session ended too long ago.
	Restore Reason = "unknown to the cluster"
)

// SessionError is the cause of a session's end. It matches ErrSessionExpired,
// or ErrClosed if the client itself ended the session.
type SessionError struct {
	ID      SessionID
	Reason  Reason
	LastAck time.Time // when the last answer arrived that moved the deadline
	Timeout time.Duration
	// Stalled is the longest time this process itself is known not to have run
	// since LastAck. A value near Timeout says that the pause was here and not
	// in the cluster or the network.
	Stalled time.Duration
	Detail  string // what else is known: how another ended it, or the server's words
}

// Error implements error.
func (e *SessionError) Error() string {
	s := fmt.Sprintf("session %s: %s", e.ID, e.Reason)
	if e.Reason == Silent && e.Timeout > 0 {
		s = fmt.Sprintf("session %s: %s of %s", e.ID, e.Reason, e.Timeout)
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if !e.LastAck.IsZero() && e.Reason != ByClient {
		s += "; last answer at " + e.LastAck.UTC().Format("15:04:05.000Z")
	}
	if e.Stalled >= reportStall {
		s += fmt.Sprintf("; this process itself did not run for %s", e.Stalled.Round(time.Millisecond))
	}
	return s
}

// Is makes the error match ErrSessionExpired, or ErrClosed.
func (e *SessionError) Is(target error) bool {
	if e.Reason == ByClient {
		return errors.Is(ErrClosed, target)
	}
	return errors.Is(ErrSessionExpired, target)
}

// reportStall is the shortest pause of the process worth mentioning.
const reportStall = 500 * time.Millisecond
