package server

import (
	"sync"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// item is one reply or event that waits to be sent: pointers to what the state
// machine left, so that queueing it costs little and encoding happens outside
// every lock. Everything an item points to is immutable once it is queued.
type item struct {
	// id is a write's number, another request's id, or an event's watch.
	id   uint64
	zxid zxid.ID
	op   opName // of a reply, for metrics
	// registers marks the reply that registers a watch: no event of it may
	// come before.
	registers bool
	start     int64  // of a reply: when the request arrived, see stopwatch
	path      string // of a read, for the log

	err    *coordpb.Error // of a reply
	result *fsm.Result    // of a write
	read   *readResult    // of a read
	event  *event         // this item is an event
}

// event is what a watch is told.
type event struct {
	kind     coordpb.EventType
	path     string
	index    uint32
	last     bool
	oneShot  bool
	withData bool
	dropped  bool // data was asked for and is no longer kept

	// change is what happened; nil for resync and for the present state.
	change *znode.Change
	// stat and data are the present state, for EVENT_PRESENT.
	stat *znode.Stat
	data []byte
	// queued is when the event was put into the first outbox, which sets it.
	queued time.Time
}

// itemOverhead is what an item counts for beside its data, in bytes.
const itemOverhead = 160

func (e *event) size() int {
	n := itemOverhead + len(e.path)
	if e.withData {
		n += len(e.data)
		if e.change != nil {
			n += len(e.change.Data)
		}
	}
	return n
}

// outbox is what waits to be sent on one stream. Producers are the apply hook,
// the reader and the receiver; the one consumer is the stream's sender. It is
// safe for concurrent use.
//
// It is bounded: an event that does not fit ends the stream with
// CODE_SLOW_CONSUMER, because an event may be late but never lost; the client
// comes back and resumes. Replies are bounded by the requests in flight and
// are always taken, and reads are held back while the outbox is full (see
// conn.postpone).
type outbox struct {
	maxItems, maxBytes int
	// wake has room for one: a signal that is there already serves all.
	wake chan struct{}

	mu       sync.Mutex // guards below
	items    []item
	bytes    int
	progress bool           // say how far we are although there is nothing else
	held     bool           // until the end nothing is sent
	goodbye  *coordpb.Error // send this when the items are out, and end
	closed   bool           // nothing is taken any more
}

func newOutbox(maxBytes int) *outbox {
	return &outbox{
		maxItems: maxBytes / itemOverhead,
		maxBytes: maxBytes,
		wake:     make(chan struct{}, 1),
	}
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// reply queues a reply. size is what it keeps alive beside itself, in bytes.
func (o *outbox) reply(it item, size int) {
	o.mu.Lock()
	if !o.closed {
		o.items = append(o.items, it)
		o.bytes += itemOverhead + size
	}
	o.mu.Unlock()
	o.signal()
}

// event queues an event of watch id at z. An event for several outboxes must be
// queued by one goroutine, under one lock. It reports false if that ended the
// stream.
func (o *outbox) event(id uint64, z zxid.ID, e *event) bool {
	o.mu.Lock()
	defer o.signal()
	defer o.mu.Unlock()
	if o.closed {
		return true
	}
	size := e.size()
	if len(o.items) >= o.maxItems || o.bytes+size > o.maxBytes {
		o.overflowLocked()
		return false
	}
	if e.queued.IsZero() {
		e.queued = time.Now()
	}
	o.items = append(o.items, item{id: id, zxid: z, event: e})
	o.bytes += size
	return true
}

// overflowLocked gives up on the client: what is queued is dropped, replies
// too, so that nothing that came later is sent without what came before.
func (o *outbox) overflowLocked() {
	o.closed = true
	o.items, o.bytes = nil, 0
	o.goodbye = &coordpb.Error{
		Code:    coordpb.Code_CODE_SLOW_CONSUMER,
		Message: "the client did not read its events fast enough; it may come back and resume its watches",
		Limit:   settingQueue,
	}
}

// end makes goodbye the last message. Items that are queued go first. Later
// ends change nothing.
func (o *outbox) end(goodbye *coordpb.Error) {
	o.mu.Lock()
	if !o.closed {
		o.closed = true
		o.goodbye = goodbye
	}
	o.mu.Unlock()
	o.signal()
}

// holdLast keeps what is queued until the end, which is near: the client learns
// from one message what the end of its session did and why it has ended.
func (o *outbox) holdLast() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = true
}

// mark asks for a progress mark if nothing else is about to be sent.
func (o *outbox) mark() {
	o.mu.Lock()
	o.progress = !o.closed
	o.mu.Unlock()
	o.signal()
}

// room is how many bytes the outbox still has for what can wait.
func (o *outbox) room() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.maxBytes/2 - o.bytes
}

// parcel is all that take found.
type parcel struct {
	items    []item
	progress bool
	goodbye  *coordpb.Error
	closed   bool // events may have been left out behind the items
}

// take empties the outbox, unless that waits for the end and the stream is not
// stopped. spare is an empty slice to queue in from now on.
func (o *outbox) take(spare []item, stopped bool) parcel {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held && !o.closed && !stopped {
		return parcel{}
	}
	p := parcel{items: o.items, progress: o.progress, goodbye: o.goodbye, closed: o.closed}
	o.items, o.bytes, o.progress = spare, 0, false
	return p
}
