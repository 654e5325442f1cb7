package client

import (
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coordd/coord/api/coordpb"
)

// call is one request on its way. Its fields are guarded by the session's lock
// until it is over; req is not changed any more once it was sent.
type call struct {
	req  coordpb.Request
	kind callKind
	size int // bytes on the wire, about

	// Exactly one of the two is used when the call is over.
	fn   func(*call)   // runs without the session's lock
	done chan struct{} // is closed

	over    bool
	skipped bool // a numbered write that is offered as Skip from now on
	dropped bool // its caller has left; never sent, or the answer is not awaited
	behind  bool // a read that stands in line.waiting, behind writes

	watch *watcher // whose registration this is

	// The outcome, when it is over: either reply or err.
	reply *coordpb.Reply
	node  string // that answered
	err   error  // the session has ended
	maybe bool   // err leaves open whether a write was done
	// held is the passing refusal that the call is being repeated for.
	held *coordpb.Error
}

type callKind uint8

const (
	callWrite callKind = iota // numbered: writes and close
	callRead
	callWatch
	callUnwatch // has no reply
)

// writeCall holds a write and its parts in one piece of memory.
type writeCall struct {
	call
	write coordpb.Write
	op    coordpb.Op
	ops   [1]*coordpb.Op
}

// newWrite makes the call for one operation that toProto fills in.
func newWrite() *writeCall {
	w := new(writeCall)
	w.kind = callWrite
	w.ops[0] = &w.op
	w.write.Ops = w.ops[:]
	w.req.Write = &w.write
	return w
}

type readCall struct {
	call
	read coordpb.Read
}

func newRead() *readCall {
	r := new(readCall)
	r.kind = callRead
	r.req.Read = &r.read
	return r
}

// measure sets the size of a call before it is queued.
func (c *call) measure() {
	switch {
	case c.kind == callWrite && c.req.Write != nil && !c.req.Write.Multi:
		op := c.req.Write.Ops[0]
		c.size = 64 + len(op.Path) + len(op.Data)
		if len(op.Acl) > 0 {
			c.size = proto.Size(&c.req)
		}
	case c.kind == callRead:
		c.size = 48 + len(c.req.Read.Path) + len(c.req.Read.After)
	default:
		c.size = 16 + proto.Size(&c.req)
	}
}

// ended collects the calls that are over while the lock is held; tell runs
// their callbacks when it is not.
type ended []*call

// add ends a call; err or reply is its outcome. A call that is over already
// stays as it is.
func (e *ended) add(c *call, reply *coordpb.Reply, err error, maybe bool) {
	if c.over {
		return
	}
	c.over, c.reply, c.err, c.maybe = true, reply, err, maybe
	if c.fn != nil {
		*e = append(*e, c)
		return
	}
	close(c.done)
}

func (e ended) tell() {
	for _, c := range e {
		c.fn(c)
	}
}

// asTold is how long to wait before something is tried again: as long as the
// server that refused it has said, and at least least. If it has said something, up
// to half longer, so that those refused together do not come back together.
func asTold(e *coordpb.Error, least time.Duration) time.Duration {
	if e.GetRetryAfterMs() == 0 {
		return least
	}
	d := max(least, min(time.Duration(e.GetRetryAfterMs())*time.Millisecond, maxPatience))
	return d + rand.N(d/2+1)
}

// retryPause is how long a request is held back that was refused for a passing
// reason which does not say how long.
const retryPause = 50 * time.Millisecond
