package client

import (
	"context"
	"iter"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/znode"
)

// EventType says what an Event is about.
type EventType uint8

// Types of events.
const (
	// EventCreated, EventDeleted and EventChanged: the node at Path was
	// created, deleted, or its data set.
	EventCreated EventType = iota + 1
	EventDeleted
	EventChanged
	// EventChildren: a child of the node at Path came or went.
	EventChildren
	// EventACL: the ACL of the node at Path was set.
	EventACL
	// EventResync: changes may have been missed, because the servers no longer
	// know all of them. Read the state anew; changes after Zxid follow.
	EventResync
	// EventPresent and EventAbsent: the state when the watch began ([Initial]).
	EventPresent
	EventAbsent
)

func (t EventType) String() string {
	switch t {
	case EventCreated:
		return "created"
	case EventDeleted:
		return "deleted"
	case EventChanged:
		return "changed"
	case EventChildren:
		return "children"
	case EventACL:
		return "acl"
	case EventResync:
		return "resync"
	case EventPresent:
		return "present"
	case EventAbsent:
		return "absent"
	default:
		return "unknown"
	}
}

// Event is one change, or one of the marks EventResync, EventPresent and
// EventAbsent.
type Event struct {
	Type  EventType
	Path  string
	Zxid  Zxid   // the transaction
	Index uint32 // position within the transaction
	Last  bool   // the last event of its transaction for this watch
	Stat  Stat   // after the change; of EventDeleted: before it
	Data  []byte // with [WithData]
	// DataDropped: the data was asked for, but the servers no longer keep what
	// it was then.
	DataDropped bool
	Cause       Cause
	Session     SessionID // that made the change, 0 = none
}

// WatchOption changes a watch. Without one it tells when the node itself is
// created, changed or deleted.
type WatchOption func(*watchOptions)

type watchOptions struct {
	kind     coordpb.Watch_Kind
	since    Zxid
	withData bool
	initial  bool
	mode     ReadMode
}

// Recursive watches the node and everything below it.
func Recursive() WatchOption {
	return func(o *watchOptions) { o.kind = coordpb.Watch_KIND_RECURSIVE }
}

// Children watches the set of the node's children.
func Children() WatchOption { return func(o *watchOptions) { o.kind = coordpb.Watch_KIND_CHILDREN } }

// NodeAndChildren watches the node itself and the set of its children.
func NodeAndChildren() WatchOption {
	return func(o *watchOptions) { o.kind = coordpb.Watch_KIND_PERSISTENT }
}

// Since begins with every change after transaction z, instead of now. If the
// servers no longer know all of them the first event is EventResync.
func Since(z Zxid) WatchOption { return func(o *watchOptions) { o.since = z } }

// WithData puts the data after the change into each event.
func WithData() WatchOption { return func(o *watchOptions) { o.withData = true } }

// Initial makes the first event say whether the node is there (EventPresent,
// EventAbsent), read in the given mode; no change after that is missed.
// [ReadDefault] is the client's mode.
func Initial(m ReadMode) WatchOption {
	return func(o *watchOptions) { o.initial, o.mode = true, m }
}

// Watch yields the changes of the node at path, or more (see the WatchOptions),
// in commit order, without gaps and each one once. After a reconnect it resumes
// where it was; if the servers no longer have all changes since, one EventResync
// is yielded and the caller must read the state anew. A loop that is slower than
// the changes is no danger to other calls: what it cannot take yet is fetched
// again later.
//
// The loop ends with an error as the last thing yielded when ctx is done, the
// session is over, or the watch is refused. Leaving the loop ends the watch.
func (c *Client) Watch(ctx context.Context, path string, opts ...WatchOption) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w, err := c.newWatcher(path, opts)
		if err != nil {
			yield(Event{}, err)
			return
		}
		if err := w.begin(); err != nil {
			yield(Event{}, located(err, "watch", path))
			return
		}
		defer w.stop()
		for {
			events, err := w.take(ctx)
			for _, e := range events {
				if !yield(c.event(e), nil) {
					return
				}
			}
			if err != nil {
				yield(Event{}, located(err, "watch", path))
				return
			}
		}
	}
}

func (c *Client) newWatcher(path string, opts []WatchOption) (*watcher, error) {
	full, err := c.root().check(path, false)
	if err != nil {
		return nil, &Error{Op: "watch", Path: path, Err: err, Index: -1}
	}
	o := watchOptions{kind: coordpb.Watch_KIND_NODE}
	for _, opt := range opts {
		opt(&o)
	}
	if o.mode == ReadDefault {
		o.mode = c.core.opts.reads
	}
	return &watcher{s: c.session, path: full, opts: o, pos: o.since, wake: make(chan struct{}, 1)}, nil
}

func (c *Client) event(e *coordpb.Event) Event {
	out := Event{
		Path: c.root().strip(e.Path), Zxid: Zxid(e.Zxid), Index: e.Index, Last: e.Last,
		Stat: statFromProto(e.Stat), Data: e.Data, DataDropped: e.DataDropped,
		Cause: causeFromProto(e.Cause), Session: SessionID(e.Session),
	}
	switch e.Type {
	case coordpb.EventType_EVENT_CREATED:
		out.Type = EventCreated
	case coordpb.EventType_EVENT_DELETED:
		out.Type = EventDeleted
	case coordpb.EventType_EVENT_CHANGED:
		out.Type = EventChanged
	case coordpb.EventType_EVENT_CHILDREN:
		out.Type = EventChildren
	case coordpb.EventType_EVENT_ACL_CHANGED:
		out.Type = EventACL
	case coordpb.EventType_EVENT_PRESENT:
		out.Type = EventPresent
	case coordpb.EventType_EVENT_ABSENT:
		out.Type = EventAbsent
	default:
		// A kind of change that this client does not know must not pass in
		// silence.
		out.Type = EventResync
	}
	return out
}

func causeFromProto(p coordpb.Cause) Cause {
	switch p {
	case coordpb.Cause_CAUSE_SESSION_CLOSED:
		return znode.BySessionClose
	case coordpb.Cause_CAUSE_SESSION_EXPIRED:
		return znode.BySessionExpiry
	case coordpb.Cause_CAUSE_REAPED:
		return znode.ByReaper
	case coordpb.Cause_CAUSE_ADMIN:
		return znode.ByAdmin
	default:
		return znode.ByRequest
	}
}
