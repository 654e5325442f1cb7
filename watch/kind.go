package watch

import "github.com/coordd/coord/znode"

// Kind is what a watch waits for and how long it stays.
type Kind uint8

const (
	// OneShotData, of a read of a znode's data: its next change, and done.
	OneShotData Kind = iota
	// OneShotExists, of a question whether a znode exists: the same.
	OneShotExists
	// OneShotChildren, of a listing: the next change of the set of children, or
	// the end of the znode itself.
	OneShotChildren
	// Node stays: created, changed, deleted, ACL changed.
	Node
	// Children stays: changes of the set of children, and the znode's end.
	Children
	// Persistent stays: Node and Children together, one event for the end.
	Persistent
	// Recursive stays: what Node gets, for the znode and everything below.
	Recursive

	// NumKinds is the number of kinds.
	NumKinds = iota
)

var kindNames = [NumKinds]string{"data", "exists", "children", "node", "lasting-children", "persistent", "recursive"}

// String names the kind as metrics do.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "kind?"
}

// OneShot says whether a watch of this kind is gone when it has fired.
func (k Kind) OneShot() bool { return k <= OneShotChildren }

// EventType says what a watch saw.
type EventType uint8

const (
	// Created: the znode of the event's path was created.
	Created EventType = iota + 1
	// Deleted: it was deleted.
	Deleted
	// Changed: its data was set.
	Changed
	// ChildrenChanged: a child of it was created or deleted.
	ChildrenChanged
	// ACLChanged: its ACL was set.
	ACLChanged
)

var eventNames = [...]string{"event?", "created", "deleted", "changed", "children", "acl-changed"}

// String names the type as the command line prints it.
func (t EventType) String() string {
	if int(t) < len(eventNames) {
		return eventNames[t]
	}
	return eventNames[0]
}

// ownEvent is what a change is to its own znode.
var ownEvent = [...]EventType{
	znode.Created:     Created,
	znode.Deleted:     Deleted,
	znode.DataChanged: Changed,
	znode.ACLChanged:  ACLChanged,
}

// seesOwn[k] has a bit for each type of change of the watched znode itself
// that a watch of kind k fires on.
var seesOwn = [NumKinds]uint8{
	OneShotData:     bit(znode.Created) | bit(znode.Deleted) | bit(znode.DataChanged),
	OneShotExists:   bit(znode.Created) | bit(znode.Deleted) | bit(znode.DataChanged),
	OneShotChildren: bit(znode.Deleted),
	Node:            bit(znode.Created) | bit(znode.Deleted) | bit(znode.DataChanged) | bit(znode.ACLChanged),
	Children:        bit(znode.Deleted),
	Persistent:      bit(znode.Created) | bit(znode.Deleted) | bit(znode.DataChanged) | bit(znode.ACLChanged),
	Recursive:       bit(znode.Created) | bit(znode.Deleted) | bit(znode.DataChanged) | bit(znode.ACLChanged),
}

func bit(t znode.ChangeType) uint8 { return 1 << t }

// childKind says whether a watch of kind k fires on a child that comes or goes.
func childKind(k Kind) bool { return k == OneShotChildren || k == Children || k == Persistent }

// changesChildren says whether a change alters its parent's set of children.
func changesChildren(c *znode.Change) bool {
	return c.Type == znode.Created || c.Type == znode.Deleted
}

// singles has each event type as a slice of one, so that Match takes no memory.
var singles = [...]EventType{0, Created, Deleted, Changed, ChildrenChanged, ACLChanged}

// Match returns the events that a change gives to a watch of kind k on path, in
// order; nil for none. At most one comes of one change. The event's path is
// that of the change, but for ChildrenChanged the watched one. The result must
// not be changed.
func Match(k Kind, path string, c *znode.Change) []EventType {
	if t := match(k, path, c); t != 0 {
		return singles[t : t+1 : t+1]
	}
	return nil
}

// match is Match for those who know that there is one event at most; 0 is none.
func match(k Kind, path string, c *znode.Change) EventType {
	if path == c.Path || k == Recursive && below(path, c.Path) {
		if seesOwn[k]&bit(c.Type) != 0 {
			return ownEvent[c.Type]
		}
		return 0
	}
	if childKind(k) && changesChildren(c) && path == parent(c.Path) {
		return ChildrenChanged
	}
	return 0
}

// below says whether p lies under top.
func below(top, p string) bool {
	if top == "/" {
		return true
	}
	return len(p) > len(top) && p[len(top)] == '/' && p[:len(top)] == top
}

// parent returns the path of the parent; that of "/" is "" and watched by nobody.
func parent(p string) string {
	for i := len(p) - 1; i > 0; i-- {
		if p[i] == '/' {
			return p[:i]
		}
	}
	if len(p) > 1 {
		return "/"
	}
	return ""
}
