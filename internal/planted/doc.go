// Package planted has bugs that can be switched on, so that tests can show that
// the checkers would find them. A checker that finds nothing proves nothing.
//
// They exist only in programs that were built with the tag "planted". In all
// others [On] is a constant false, and the compiler leaves out what depends on it.
// The places where a bug is planted say so, with [On] or [Run].
package planted

// Bug names a bug.
type Bug string

// The bugs.
const (
	// AckBeforeQuorum: the leader takes a follower that could not be reached for
	// one that has written the entry to its disk.
	AckBeforeQuorum Bug = "acknowledge before quorum"
	// ForgetResults: a server that starts from a snapshot does not know any more
	// which writes it has done whose answers were not acknowledged.
	ForgetResults Bug = "forget dedup results at snapshot"
	// LoseGeneration: what was sent by a connection that another one has replaced
	// is carried out.
	LoseGeneration Bug = "lose the generation check"
	// FireBeforeReply: a watch that resumes tells of changes before the reply that
	// it is registered.
	FireBeforeReply Bug = "fire before reply"
	// StaleAfterElection: a new leader serves reads before it knows how far the
	// cluster has come.
	StaleAfterElection Bug = "stale read after election"
	// TokenFromSequence: a lock's token is the number of its queue entry.
	TokenFromSequence Bug = "token from the sequence number"
	// SkipWatch: one watch is left out when a client resumes its watches.
	SkipWatch Bug = "skip one watch at resume"
	// OldLeadersClock: a server that leads again goes on with what it knew of the
	// sessions when it led the last time.
	OldLeadersClock Bug = "expire on old leader's clock"
	// DropSession: a snapshot is restored without one of its sessions.
	DropSession Bug = "drop session table entry at restore"
	// MapOrder: the operations of a transaction are done in the order of a map.
	MapOrder Bug = "non-deterministic map order in apply"
	// NoClamp: a message of the leader may commit entries that it has not compared.
	NoClamp Bug = "transport without its clamp"
)

// All are all bugs.
var All = []Bug{
	AckBeforeQuorum, ForgetResults, LoseGeneration, FireBeforeReply, StaleAfterElection, TokenFromSequence,
	SkipWatch, OldLeadersClock, DropSession, MapOrder, NoClamp,
}
