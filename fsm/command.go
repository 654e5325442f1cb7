package fsm

import (
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

// LineRef names the number line a command travels on, and with it who must
// never have the command applied twice. Session != 0: the line of that session,
// at the given generation; otherwise Server != "": the line of that server's
// start Boot. The zero LineRef is no line.
type LineRef struct {
	Session    session.ID
	Generation uint64
	Server     string // name~incarnation
	Boot       uint64
}

func (l LineRef) kind() lineKinds {
	switch {
	case l.Session != 0:
		return lineSession
	case l.Server != "":
		return lineServer
	}
	return lineNone
}

// Command is one proposal: what a batch entry of the log is made of. Exactly
// the body that belongs to Kind is set; the others are nil or zero.
type Command struct {
	Kind Kind
	Line LineRef
	// Seq is the number on the line, from 1 without gaps; 0 without a line.
	Seq uint64
	// Ack says that the answers to all numbers up to it have arrived.
	Ack uint64
	// Attempt counts how often the origin has offered the line from its oldest
	// unanswered number; it comes back in the Result so that gaps of an older
	// offering can be told from those of the present one.
	Attempt uint32
	// Term is the Raft term of the proposing leader: Reap, Feature,
	// RemoveServer. (Expire and NewEpoch carry theirs inside.)
	Term uint64

	Write      *Write             // CmdWrite
	Code       Code               // CmdSkip
	Open       *Open              // CmdOpen
	Attach     *Attach            // CmdAttach
	Identities []session.Identity // CmdIdentities
	Expire     *Expire            // CmdExpire, CmdSuspect, CmdUnsuspect
	Epoch      *NewEpoch          // CmdNewEpoch
	Boot       *Boot              // CmdBoot
	Reap       []znode.Reap       // CmdReap
	Trim       []Trim             // CmdTrim
	Kill       *Kill              // CmdKill
	Feature    uint32             // CmdFeature
	Server     string             // CmdRemoveServer: name~incarnation
	Begin      *RestoreBegin      // CmdRestoreBegin
	Chunk      *RestoreChunk      // CmdRestoreChunk
	Commit     *RestoreCommit     // CmdRestoreCommit
}

// Write is a change of the tree: one op, or a multi that is all or nothing.
type Write struct {
	Multi bool
	Ops   []znode.Op
	// RequestID makes a sessionless write repeatable by anybody until
	// ValidUntil (cluster time, ms since 1970), which the first server fills in.
	RequestID  string
	ValidUntil int64
	// Hash tells two requests of one id apart. It is computed from Multi and
	// Ops by AppendCommand and DecodeCommand and not sent; 0 without RequestID.
	Hash uint64
	// Identities and Trusted describe the caller of a sessionless write and are
	// ignored in a session, whose identities stand in the table.
	Identities []session.Identity
	Trusted    bool
}

// Open asks for a new session. A repeat with the same Nonce gives back the
// session the first one opened.
type Open struct {
	Nonce    session.Nonce
	Secret   session.Secret
	Timeout  time.Duration
	Protocol session.Protocol
	Name     string // for operators
	// Identity is the client's stable identity, or empty. Opening ends the
	// identity's present session if Expect names it, and is refused otherwise.
	Identity string
	Expect   session.ID

	Server     string // name~incarnation
	Boot       uint64
	Address    string // the client's
	Identities []session.Identity
}

// Attach binds a session to a new connection of its client.
type Attach struct {
	Session session.ID
	Secret  session.Secret
	// Connection is the client's own rising connection number (gRPC sessions).
	Connection uint64
	// Expect and Nonce are the compare-and-set of ZooKeeper sessions: the
	// generation the server saw when the handshake arrived, and the mark by
	// which a repeat is known.
	Expect  uint64
	Nonce   session.Nonce
	Timeout time.Duration // 0 keeps the present one

	Server     string // name~incarnation
	Boot       uint64
	Address    string // the client's
	Protocol   session.Protocol
	Identities []session.Identity
}

// Expire names a session as the leader of Term saw it. Expire and Suspect apply
// only if Generation and Touched are still those and the entry is of Term;
// Unsuspect asks for the term alone.
type Expire struct {
	Session    session.ID
	Generation uint64
	Touched    uint64 // log index of the session's last command
	Term       uint64
	// Silent is how long the session has been silent, CmdSuspect only. It is
	// above 0; past the session's timeout it counts as the timeout.
	Silent time.Duration
}

// NewEpoch opens a leadership in the state.
type NewEpoch struct {
	Term  uint64
	Clock int64 // lower median of a quorum's wall clocks, ms since 1970
	// MinEpoch, if larger than the next epoch, is taken instead of it: seconds
	// since 2024-01-01 at the birth of a cluster and after recovery, so that
	// fencing tokens rise over a total loss.
	MinEpoch  uint32
	ClusterID string // kept from the first NewEpoch only
}

// Boot begins the number line of one start of a server.
type Boot struct {
	Server string // name~incarnation
	Nonce  uint64
}

// Trim says that the client of Session has the answers up to Upto.
type Trim struct {
	Session session.ID
	Upto    uint64
}

// Kill ends a session for Reason.
type Kill struct {
	Session session.ID
	Reason  session.EndReason
}
