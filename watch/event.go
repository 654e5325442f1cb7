package watch

import "github.com/coordd/coord/znode"

// Event is one change as one watch sees it.
type Event struct {
	Sub   *Subscriber // nil from History.Since
	Watch uint64      // its id; 0 for a Merge subscriber, and from History.Since
	Type  EventType
	Path  string // of the changed znode; for ChildrenChanged the watched one
	// Index is the position of the change within its transaction, from 0. With
	// the zxid it orders the events of a watch and tells a repeated one.
	Index uint32
	// Last: no more events of this transaction come for this watch. A client
	// that resumes names the zxid of the last event so marked. Not set for a
	// Merge subscriber, which does not resume.
	Last    bool
	OneShot bool // the watch is gone
	// DataDropped: Change.Data was dropped from the history to save memory.
	DataDropped bool
	// Change is the change itself. It is good only until emit returns: who keeps
	// it copies it. What it points to (path, data) never changes.
	Change *znode.Change
}
