package fsm

import (
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// Status says what became of a command at apply.
type Status uint8

const (
	// StatusDone: it was decided here and now. Err set means a decided refusal,
	// which is as final as a success.
	StatusDone Status = iota
	// StatusRepeat: it was decided before; this is the answer of then. With Err
	// session.ErrUnknownOutcome the answer is not kept (ZooKeeper sessions).
	StatusRepeat
	// StatusGap: a number before it is missing. Nothing was done; offer the line
	// again from its oldest unanswered number.
	StatusGap
	// StatusAgain: the entry is of a term whose leadership has not been opened
	// in the state. Nothing was done; offer it again.
	StatusAgain
	// StatusMoved: it is of another generation of its session. Nothing was done.
	StatusMoved
	// StatusGone: its session has ended. Err is session.ErrUnknownOutcome if it
	// may have been done before, and says how the session ended if it certainly
	// was not.
	StatusGone
	// StatusAcknowledged: it was decided before and the client has said that it
	// has the answer, which is no longer kept.
	StatusAcknowledged
	// StatusOldBoot: it is of another start of its server. Nothing was done.
	StatusOldBoot
)

var statusNames = [...]string{"done", "repeat", "gap", "again", "moved", "gone", "acknowledged", "old-boot"}

// String names the status for logs and tests.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "status?"
}

// Final reports whether the command needs no further offering.
func (s Status) Final() bool { return s != StatusGap && s != StatusAgain }

// Result is the answer to one command. It is immutable once handed out and may
// be kept and read by anybody. It implements session.Value.
type Result struct {
	Line    LineRef
	Seq     uint64
	Attempt uint32
	Kind    Kind
	Status  Status
	// Zxid is the transaction of the command, 0 if it took none.
	Zxid zxid.ID
	Err  error
	Ops  []znode.OpResult // Write, Reap: one for each op
	// Session is set for Open and Attach that succeeded.
	Session *SessionInfo
	// ValidUntil is the end of the request id, cluster time in ms.
	ValidUntil int64
	// Deduplicated: the answer comes from the memory of request ids.
	Deduplicated bool
}

// SessionInfo is what the origin needs to know about an opened or attached
// session.
type SessionInfo struct {
	ID         session.ID
	Secret     session.Secret
	Timeout    time.Duration
	Generation uint64
	Next       uint64 // first number the session has not used
	// Elsewhere: the session's connection of this generation is at another
	// server or another start of this one, as after an Open that was repeated
	// through a second server. Attach before use.
	Elsewhere bool
}

// Sizes that a remembered result counts for besides its strings, in bytes.
// They are about what Go allocates and part of the replicated outcome only in
// so far as servers stop reading from a client by them.
const (
	resultBytes      = 256
	opResultBytes    = 192
	sessionInfoBytes = 64
)

// Size implements session.Value.
func (r *Result) Size() int {
	n := resultBytes + opResultBytes*len(r.Ops)
	for i := range r.Ops {
		n += len(r.Ops[i].Path)
	}
	if r.Session != nil {
		n += sessionInfoBytes
	}
	return n
}

// singleResult is the Result of a plain write in one allocation.
type singleResult struct {
	Result
	op [1]znode.OpResult
}

// again returns r as the answer to a repeat of its command, on whatever line,
// number and attempt that comes with.
func (r *Result) again(c *Command) *Result {
	copied := *r
	copied.Line, copied.Seq, copied.Attempt = c.Line, c.Seq, c.Attempt
	copied.Status = StatusRepeat
	return &copied
}

// newResult returns the result of c with the given status and error.
func newResult(c *Command, s Status, err error) *Result {
	return &Result{Line: c.Line, Seq: c.Seq, Attempt: c.Attempt, Kind: c.Kind, Status: s, Err: err}
}
