package session

import (
	"time"

	"github.com/coordd/coord/zxid"
)

// Secret proves that a client is the one that opened a session.
type Secret [16]byte

// Nonce makes a request recognisable when it is sent again.
type Nonce [16]byte

// Protocol is the one a session was opened with; it keeps it for life.
type Protocol uint8

const (
	// GRPC is the protocol of our own client.
	GRPC Protocol = iota
	// ZooKeeper is the protocol of ZooKeeper clients.
	ZooKeeper
)

// String names the protocol as the command line prints it.
func (p Protocol) String() string {
	switch p {
	case GRPC:
		return "grpc"
	case ZooKeeper:
		return "zookeeper"
	}
	return "protocol?"
}

// Session is one open session. It is read through [Table.Get] and changed only
// through [Table.Edit].
//
// ID, OpenNonce and Identity never change after [Table.Open]: the table finds
// the session by them. Slices are replaced, never changed in place: an image
// may hold the old one.
type Session struct {
	ID       ID
	Secret   Secret
	Timeout  time.Duration
	Protocol Protocol
	Name     string // for people
	Identity string // stable over the client's restarts; "" for none

	OpenNonce   Nonce  // of the Open; zero for none
	Generation  uint64 // number of the connection; 1 at Open, only rises
	AttachNonce Nonce  // of the attach that made this generation
	Server      string // "name~incarnation" of the server of this generation
	Boot        uint64 // and the boot number it had
	Address     string // of the client, "host:port"

	Touched   uint64        // log index of the last entry with a command of this session
	Suspected time.Duration // silence that leaders have written down, at most Timeout; 0: not suspect
	Opened    int64         // cluster time in ms

	Identities []Identity // what the client of this generation has proved; gone with the generation
	Line       Line

	// dirty: the digest of the table does not hold this session at the moment.
	// edition is that of the table when this copy was made; an older one may
	// be in an image and is not written to.
	digest  uint64
	edition uint64
	dirty   bool
}

// clone returns a copy that can be written while an image holds the original.
func (s *Session) clone() *Session {
	c := *s
	c.Line = s.Line.clone()
	return &c
}

// EndReason says how a session ended.
type EndReason uint8

const (
	// Closed: by its client.
	Closed EndReason = iota + 1
	// Expired: it was silent for its timeout.
	Expired
	// Killed: by an administrator.
	Killed
	// TakenOver: by the next session of the same identity.
	TakenOver
	// Restored: the state was replaced by a backup.
	Restored
)

// String names the reason as the command line prints it.
func (r EndReason) String() string {
	switch r {
	case Closed:
		return "closed"
	case Expired:
		return "expired"
	case Killed:
		return "killed"
	case TakenOver:
		return "taken over"
	case Restored:
		return "restored"
	}
	return "reason?"
}

// Unclean reports whether the client may still be at work and not know that its
// session has ended, so that what it has sent elsewhere may still arrive. It is
// the case for every end but its own close: a silent client may only be cut off
// or paused; one that an administrator kills was alive a moment ago; a successor
// of the same identity may have been started beside it; and after a restore the
// clients of the sessions in the backup may run to this day.
func (r EndReason) Unclean() bool { return r != Closed }

// Err is what a client is told: [ErrClosed] if it closed the session itself,
// else [ErrExpired].
func (r EndReason) Err() error {
	if r == Closed {
		return ErrClosed
	}
	return ErrExpired
}

// Ended is what is kept of a session that is gone.
type Ended struct {
	ID      ID
	Next    uint64 // number its line expected
	Reason  EndReason
	Zxid    zxid.ID // of the transaction that ended it
	Time    int64   // cluster time of that, ms
	Name    string
	Timeout time.Duration
}

// Outcome says what became of write seq of the ended session. A number that
// was never used was certainly not done, and the error is that of the session's
// end; any other is [ErrUnknownOutcome], because its answer is gone: to say
// "expired" there would read as "not done".
func (e *Ended) Outcome(seq uint64) error {
	if seq >= e.Next {
		return e.Reason.Err()
	}
	return ErrUnknownOutcome
}

// ServerLine is the number line of one server process: what enters the log and
// belongs to no session has its number there. It is changed only through
// [Table.EditServerLine] and [Table.Boot].
type ServerLine struct {
	Server string // "name~incarnation"
	Boot   uint64 // drawn anew at each start of the process
	Line   Line

	// past are the boots before, latest last, bounded: a late copy of an old
	// Boot command must not bring the old line back to life at number 1.
	past    []uint64
	digest  uint64
	edition uint64
	dirty   bool
}

func (l *ServerLine) clone() *ServerLine {
	c := *l
	c.Line = l.Line.clone()
	return &c
}

// Request is a write outside a session that is recognised by an id its sender
// has chosen. It is immutable once remembered.
type Request struct {
	ID    string
	End   int64  // cluster time in ms up to which it is remembered
	Hash  uint64 // of the request's content
	Value Value  // its answer
}
