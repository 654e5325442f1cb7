package fsm

import "fmt"

// Kind says what a Command does. The values stand in the log: never renumber.
type Kind uint8

const (
	// CmdNewEpoch begins a leadership. Without line.
	CmdNewEpoch Kind = 1
	// CmdBoot gives a started server a fresh number line. Without line.
	CmdBoot Kind = 2
	// CmdOpen opens a session. On the number line of the client's server.
	CmdOpen Kind = 3
	// CmdAttach binds a session to a connection. On its server's line.
	CmdAttach Kind = 4
	// CmdClose ends a session at its own wish. On the session's line.
	CmdClose Kind = 5
	// CmdWrite changes the tree. On the session's line, or the server's for
	// callers without a session.
	CmdWrite Kind = 6
	// CmdSkip uses up a number whose write will not happen.
	CmdSkip Kind = 7
	// CmdIdentities replaces what a session's client has proved about itself.
	// On the session's line.
	CmdIdentities Kind = 8
	// CmdExpire ends a silent session. Leader only, without line.
	CmdExpire Kind = 9
	// CmdSuspect marks a session with how long it has been silent.
	// Leader only, without line.
	CmdSuspect Kind = 10
	// CmdUnsuspect takes the mark back. Leader only, without line.
	CmdUnsuspect Kind = 11
	// CmdReap deletes containers and znodes with a TTL whose time has come. Leader only.
	CmdReap Kind = 12
	// CmdTrim drops remembered results of idle sessions.
	CmdTrim Kind = 13
	// CmdKill ends a session on behalf of an operator.
	CmdKill Kind = 14
	// CmdFeature raises the feature level. Leader only.
	CmdFeature Kind = 15
	// CmdRemoveServer forgets the number line of a server that left. Leader only.
	CmdRemoveServer Kind = 16
	// CmdRestoreBegin makes room for a backup. This and the next two are on the
	// line of the server that carries the restore out.
	CmdRestoreBegin Kind = 17
	// CmdRestoreChunk brings the next bytes of the backup.
	CmdRestoreChunk Kind = 18
	// CmdRestoreCommit puts the backup in the place of the tree.
	CmdRestoreCommit Kind = 19

	lastKind = CmdRestoreCommit
)

var kindNames = [...]string{
	CmdNewEpoch:     "new-epoch",
	CmdBoot:         "boot",
	CmdOpen:         "open",
	CmdAttach:       "attach",
	CmdClose:        "close",
	CmdWrite:        "write",
	CmdSkip:         "skip",
	CmdIdentities:   "identities",
	CmdExpire:       "expire",
	CmdSuspect:      "suspect",
	CmdUnsuspect:    "unsuspect",
	CmdReap:         "reap",
	CmdTrim:         "trim",
	CmdKill:         "kill",
	CmdFeature:      "feature",
	CmdRemoveServer: "remove-server",

	CmdRestoreBegin:  "restore-begin",
	CmdRestoreChunk:  "restore-chunk",
	CmdRestoreCommit: "restore-commit",
}

// String names the kind for logs and metrics.
func (k Kind) String() string {
	if k.known() {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

func (k Kind) known() bool { return k >= CmdNewEpoch && k <= lastKind }

// leaderOnly reports whether only the leader itself may propose the kind: it
// carries the leader's term, or a decision that only the leader can take.
func (k Kind) leaderOnly() bool {
	switch k {
	case CmdNewEpoch, CmdExpire, CmdSuspect, CmdUnsuspect, CmdReap, CmdFeature, CmdRemoveServer:
		return true
	default:
		return false
	}
}

// lineWanted says on which number lines a kind may travel.
func (k Kind) lineWanted() lineKinds {
	switch k {
	case CmdOpen, CmdAttach, CmdRestoreBegin, CmdRestoreChunk, CmdRestoreCommit:
		return lineServer
	case CmdClose, CmdIdentities:
		return lineSession
	case CmdWrite, CmdSkip:
		return lineSession | lineServer
	case CmdTrim, CmdKill, CmdReap, CmdFeature, CmdRemoveServer:
		// Each is idempotent by itself, so a number is welcome but not needed.
		return lineNone | lineServer
	default:
		return lineNone
	}
}

// lineKinds is a set of kinds of number lines.
type lineKinds uint8

const (
	lineNone lineKinds = 1 << iota
	lineSession
	lineServer
)
