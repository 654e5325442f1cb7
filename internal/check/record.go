package check

import (
	"fmt"
	"strings"
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/zxid"
)

// Kind says what a record is about.
type Kind string

// Kinds of records.
const (
	Create   Kind = "create"
	Set      Kind = "set"
	Delete   Kind = "delete"
	CheckAt  Kind = "check" // of a version, in a transaction
	Txn      Kind = "txn"   // Ops has the operations
	Get      Kind = "get"   // also Exists: then Data is empty and NoData set
	Children Kind = "children"
	Sync     Kind = "sync"

	Watching Kind = "watching" // a watch was begun, for everything after Zxid
	Event    Kind = "event"    // Watch is the number of its Watching record
	Unwatch  Kind = "unwatch"  // the watch has ended; one that fires once has told of nothing up to Zxid
	Settled  Kind = "settled"  // every watch that goes on must have told up to Zxid by now
	Broken   Kind = "broken"   // a rule of the stream was broken, as Detail says; see Tap

	Opened Kind = "opened" // a session
	Ended  Kind = "ended"  // a session, as its client saw it
	Silent Kind = "silent" // a session's client is cut off, or dead, from Begin on
	Killed Kind = "killed" // a session that somebody ends on purpose, from Begin on

	Acquire Kind = "acquire" // a lock: asked for at Begin, granted at End
	Release Kind = "release" // Hold is the number of its Acquire record
	Lost    Kind = "lost"    // the holder was told at Begin

	Proclaim   Kind = "proclaim"  // of a value by a leader; Hold is the number of its Acquire record
	Observing  Kind = "observing" // an election is observed from now on
	Observed   Kind = "observed"  // Watch is the number of its Observing record; not Found: nobody leads
	LeaderRead Kind = "leader"    // who leads was asked

	Armed Kind = "armed" // a watch that fires once was set; Type is what it is for, Zxid what its reply has shown
	Fired Kind = "fired" // Watch is the number of its Armed record, Zxid the newest that was shown before

	Restored Kind = "restored" // a backup was put in the place of the state, in transaction Zxid

	Digest Kind = "digest" // of a server in the end: Client is its name, Data the digest
)

// Outcome is what the one who asked knows about what became of it.
type Outcome string

// Outcomes.
const (
	Done    Outcome = "done"
	Refused Outcome = "refused" // answered: the state did not allow it; Err says why
	Failed  Outcome = "failed"  // certainly not done
	Unknown Outcome = "unknown" // done, or not, or still to be done
)

// Why a write was refused by the state; the Err of a record that is Refused.
const (
	NoNode     = "no node"
	NodeExists = "node exists"
	BadVersion = "bad version"
	NotEmpty   = "not empty"
	RolledBack = "rolled back"
	OtherCause = "other" // for reasons that no check looks at
)

// NotTold stands for the version of a znode in the Stat of a write that was refused
// for it, where the answer does not tell it: as at the ZooKeeper port.
const NotTold = -1

// Flag says what kind of znode a create asked for.
type Flag uint8

// Flags of a create.
const (
	Ephemeral Flag = 1 << iota
	Sequential
	// Fleeting znodes may go by themselves: containers, and those with a TTL or
	// a linger. Only the checks that do not need to know when look at them.
	Fleeting
)

// Modes of reads, as in client.ReadMode.
const (
	Linearizable = "linearizable"
	SessionRead  = "session"
	StaleRead    = "stale"
)

// Ways to hold a lock.
const (
	Alone  = "alone"  // a mutex, a writer, a leader
	Shared = "shared" // a reader: shares with readers
	Slot   = "slot"   // of a semaphore: Limit at a time
)

// Reasons for the end of a session or the loss of a lock.
const (
	ByClient = "client" // its own client has closed it
	BySilent = "silent" // expired, or counted as expired by the client itself
	ByOther  = "other"  // killed, taken over, deleted by an operator
	// ByRestore: a backup was restored, or the cluster does not know the session.
	ByRestore = "restore"
	// ByServer: the client was told that it is over, and not why; its deadline is the
	// time up to which it could count on it at least.
	ByServer = "server"
	ByMargin = "margin" // a lock that its client gave up ahead of the deadline
)

// Causes of changes, in events.
const (
	CauseRequest = "request"
	CauseClosed  = "close"
	CauseExpired = "expiry"
	CauseReaped  = "reaper"
	CauseAdmin   = "admin"
)

// Stat is the part of a znode's Stat that checks look at.
type Stat struct {
	Czxid    zxid.ID    `json:"czxid,omitempty"`
	Mzxid    zxid.ID    `json:"mzxid,omitempty"`
	Version  int64      `json:"version"`
	Cversion int64      `json:"cversion,omitempty"`
	Owner    session.ID `json:"owner,omitempty"`
}

// Record is one thing that a client did or saw. Times are since the start of the
// history. Only the fields that make sense for its kind are set.
type Record struct {
	N       int           `json:"n"` // position in the history, given by History.Add
	Client  string        `json:"client,omitempty"`
	Kind    Kind          `json:"kind"`
	Begin   time.Duration `json:"begin"`
	End     time.Duration `json:"end"` // answered, or given up if Unknown
	Outcome Outcome       `json:"outcome,omitempty"`
	Err     string        `json:"err,omitempty"`
	Detail  string        `json:"detail,omitempty"` // the error in full, for people

	Session session.ID `json:"session,omitempty"`
	// Seq orders the writes that one client has submitted without waiting in
	// between: a smaller one was submitted earlier. 0: not known.
	Seq  int64  `json:"seq,omitempty"`
	Path string `json:"path,omitempty"`
	// Made is the path that a create has made, and the name of a sequential one.
	Made   string   `json:"made,omitempty"`
	Flags  Flag     `json:"flags,omitempty"`
	Want   int64    `json:"want,omitempty"` // version asked for; client.AnyVersion: none
	Data   string   `json:"data,omitempty"`
	NoData bool     `json:"noData,omitempty"` // Data was not asked for
	Mode   string   `json:"mode,omitempty"`
	Found  bool     `json:"found,omitempty"` // a read has found the znode
	Stat   Stat     `json:"stat,omitzero"`
	Names  []string `json:"names,omitempty"` // of children
	Ops    []Record `json:"ops,omitempty"`
	// Zxid of a write that was done is its transaction, 0 if the answer does not
	// tell; of a read what the server had applied; of an event the change's.
	Zxid zxid.ID `json:"zxid,omitempty"`

	Watch     int    `json:"watch,omitempty"`
	Type      string `json:"type,omitempty"`  // of an event, as client.EventType prints it
	Index     uint32 `json:"index,omitempty"` // of an event within its transaction
	Last      bool   `json:"last,omitempty"`
	Cause     string `json:"cause,omitempty"`
	Recursive bool   `json:"recursive,omitempty"`
	Missed    bool   `json:"missed,omitempty"` // changes in front of it may not have been told

	Hold  int    `json:"hold,omitempty"`
	Token uint64 `json:"token,omitempty"`
	As    string `json:"as,omitempty"`
	Limit int    `json:"limit,omitempty"`

	Reason string `json:"reason,omitempty"`
	// Deadline of an ended session is the one it had, on the history's clock.
	Deadline time.Duration `json:"deadline,omitempty"`
	Timeout  time.Duration `json:"timeout,omitempty"`
}

// answered is whether the one who asked has got an answer about the state.
func (r *Record) answered() bool { return r.Outcome == Done || r.Outcome == Refused }

// before is whether r was over before o began.
func (r *Record) before(o *Record) bool { return r.Outcome != Unknown && r.End < o.Begin }

// isWrite is whether the record changes a znode, or would.
func (r *Record) isWrite() bool { return r.Kind == Create || r.Kind == Set || r.Kind == Delete }

// target is the path that was changed or read.
func (r *Record) target() string {
	if r.Made != "" {
		return r.Made
	}
	return r.Path
}

// String is one line of a drawing.
func (r *Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d %s %s", r.N, r.Client, r.Kind)
	if p := r.target(); p != "" {
		b.WriteString(" " + p)
	}
	for _, part := range []struct {
		set  bool
		text string
	}{
		{r.Mode != "", r.Mode},
		{r.Type != "", r.Type},
		{r.Data != "", fmt.Sprintf("%.40q", r.Data)},
		{r.Stat != Stat{}, fmt.Sprintf("version %d czxid %s mzxid %s", r.Stat.Version, r.Stat.Czxid, r.Stat.Mzxid)},
		{r.Stat.Owner != 0, "owner " + r.Stat.Owner.String()},
		{(r.Kind == Get || r.Kind == Children) && !r.Found, "absent"},
		{len(r.Names) > 0, fmt.Sprintf("%q", r.Names)},
		{r.Zxid != 0, "at " + r.Zxid.String()},
		{r.Token != 0, fmt.Sprintf("token %d (%s)", r.Token, r.As)},
		{r.Session != 0, "session " + r.Session.String()},
		{r.Reason != "", "reason " + r.Reason},
		{r.Cause != "", "by " + r.Cause},
		{r.Outcome != "" && r.Outcome != Done, string(r.Outcome)},
		{r.Err != "", r.Err},
	} {
		if part.set {
			b.WriteString(", " + part.text)
		}
	}
	for i := range r.Ops {
		fmt.Fprintf(&b, "; %s", r.Ops[i].opString())
	}
	return b.String()
}

// opString is an operation of a transaction in short.
func (r *Record) opString() string {
	return fmt.Sprintf("%s %s %.20q %s", r.Kind, r.target(), r.Data, r.Err)
}
