package fsm

import (
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// Hook hears what is applied. All methods are called under the machine's write
// lock, in log order: they must be quick, must not block, and must not call
// the machine.
type Hook interface {
	// Applied is called for every command, refused and repeated ones too. The
	// changes are those of one transaction, empty if it changed nothing; what
	// they point at is immutable, but the slice is reused after the call.
	Applied(r *Result, changes []znode.Change)
	// SessionOpened is called behind the Applied that opened a session, and
	// SessionEnded behind the one that ended it.
	SessionOpened(id session.ID, by session.Protocol)
	SessionEnded(id session.ID, by session.Protocol, reason session.EndReason)
	// EntryDone is called at the end of each log entry.
	EntryDone(index, term uint64, last zxid.ID)
	// Restored is called when a snapshot has taken the place of the state, in
	// the same critical section. Nothing between the old state and the new was
	// or will be Applied. It is also called when a backup has been restored, in
	// front of the Applied of that command and of SessionEnded for each session:
	// no changes lead from the old tree to the new one.
	Restored(index uint64, last zxid.ID)
}

// noHook is the Hook of a machine that nobody listens to.
type noHook struct{}

func (noHook) Applied(*Result, []znode.Change)                              {}
func (noHook) SessionOpened(session.ID, session.Protocol)                   {}
func (noHook) SessionEnded(session.ID, session.Protocol, session.EndReason) {}
func (noHook) EntryDone(uint64, uint64, zxid.ID)                            {}
func (noHook) Restored(uint64, zxid.ID)                                     {}
