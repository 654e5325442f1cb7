package chaos

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/check"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/zxid"
)

// zkClient is one session of somebody else's client, at the ZooKeeper port. It
// writes down what it does, as check.Client does for ours; one goroutine uses it.
type zkClient struct {
	l    *load
	name string
	conn *zk.Conn

	over context.Context // done once the servers have said that the session is
	end  context.CancelFunc

	id      atomic.Uint64 // of the session; 0: not open yet
	timeout atomic.Int64
	zxid    atomic.Uint64 // in the head of the last answer, which the library hides
	good    atomic.Int64  // answers without an error
	// heard is when the last request that was answered began: the session's
	// timeout cannot have begun before.
	heard atomic.Int64

	mu    sync.Mutex // guards below
	ended bool       // the end is recorded, or being so
}

// zkDial opens a session from the host of client i.
func (l *load) zkDial(ctx context.Context, name string, i int, timeout time.Duration) (*zkClient, error) {
	c := &zkClient{l: l, name: name}
	c.over, c.end = context.WithCancel(context.Background())
	c.heard.Store(int64(l.h.Now()))
	opened := make(chan struct{}, 1)
	conn, _, err := zk.Connect(l.r.zkAddresses(), timeout,
		zk.WithLogger(log.New(io.Discard, "", 0)), zk.WithLogInfo(false), zk.WithDialer(c.dialer(i)),
		zk.WithEventCallback(func(e zk.Event) {
			switch e.State {
			case zk.StateHasSession:
				select {
				case opened <- struct{}{}:
				default:
				}
			case zk.StateExpired:
				c.expired()
			default:
			}
		}))
	if err != nil {
		return nil, err
	}
	c.conn = conn
	select {
	case <-opened:
	case <-c.over.Done():
		err = zk.ErrSessionExpired
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		c.abandon()
		return nil, err
	}
	now := l.h.Now()
	l.h.Add(check.Record{Kind: check.Opened, Client: name, Session: c.session(), Begin: now, End: now, Timeout: time.Duration(c.timeout.Load())})
	l.opened.Add(1)
	return c, nil
}

func (c *zkClient) session() session.ID { return session.ID(c.id.Load()) }

// dialer connects from the host of client i. The library would open another session
// when the first is over; then nobody is reached any more.
func (c *zkClient) dialer(i int) zk.Dialer {
	dial := new(net.Dialer).DialContext
	if c.l.r.net != nil {
		h := c.l.hosts[i]
		dial = func(ctx context.Context, _, address string) (net.Conn, error) { return h.Dial(ctx, address) }
	}
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(c.over, timeout)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &zkTap{Conn: conn, c: c}, nil
	}
}

// zkTap looks at the heads of the frames that a client reads from a connection.
type zkTap struct {
	net.Conn
	c       *zkClient
	greeted bool   // the first frame, which is of another form, is over
	head    []byte // of the frame that is being read: its length, and 16 bytes
	rest    int    // bytes of it behind that
}

// zkHead are the bytes at the beginning of a frame that are looked at.
const zkHead = 4 + 16

func (t *zkTap) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	t.see(p[:n])
	return n, err
}

func (t *zkTap) see(p []byte) {
	for len(p) > 0 {
		if t.rest > 0 {
			skip := min(t.rest, len(p))
			t.rest, p = t.rest-skip, p[skip:]
			continue
		}
		take := min(zkHead-len(t.head), len(p))
		t.head, p = append(t.head, p[:take]...), p[take:]
		if len(t.head) == zkHead {
			t.rest = int(binary.BigEndian.Uint32(t.head)) - (zkHead - 4)
			t.frame(t.head[4:])
			t.head = t.head[:0]
		}
	}
}

// frame reads the head of the first frame, which has the timeout and the number of
// the session, and of answers, which have the number of a request, a transaction,
// and an error. Pings and events have no number of ours.
func (t *zkTap) frame(head []byte) {
	first := !t.greeted
	t.greeted = true
	switch {
	case first && binary.BigEndian.Uint64(head[8:]) != 0:
		t.c.timeout.Store(int64(time.Duration(binary.BigEndian.Uint32(head[4:])) * time.Millisecond))
		t.c.id.Store(binary.BigEndian.Uint64(head[8:]))
	case first || int32(binary.BigEndian.Uint32(head)) <= 0:
	default:
		t.c.zxid.Store(binary.BigEndian.Uint64(head[4:]))
		if binary.BigEndian.Uint32(head[12:]) == 0 {
			t.c.good.Add(1)
		}
	}
}

// expired records that the servers say that the session is over.
func (c *zkClient) expired() {
	r := c.endRecord(check.ByServer)
	c.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.ended = true
		c.l.h.Add(r)
	}
}

func (c *zkClient) endRecord(reason string) check.Record {
	now, timeout := c.l.h.Now(), time.Duration(c.timeout.Load())
	return check.Record{
		Kind: check.Ended, Client: c.name, Session: c.session(), Begin: now, End: now, Outcome: check.Done,
		Timeout: timeout, Deadline: time.Duration(c.heard.Load()) + timeout, Reason: reason,
	}
}

// abandon gives up a session that may not have been opened.
func (c *zkClient) abandon() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.conn.Close()
	c.end()
}

// close ends the session. The library does not tell whether that was answered.
func (c *zkClient) close() {
	c.mu.Lock()
	over := c.ended
	c.ended = true
	c.mu.Unlock()
	r, good := c.endRecord(check.ByClient), c.good.Load()
	c.conn.Close()
	c.end()
	if over {
		return
	}
	r.End = c.l.h.Now()
	if c.good.Load() == good {
		r.Outcome = check.Unknown
	}
	c.l.h.Add(r)
}

func (c *zkClient) begin(kind check.Kind, path string) check.Record {
	return check.Record{Kind: kind, Client: c.name, Session: c.session(), Path: path, Begin: c.l.h.Now()}
}

// finish records how what was begun has ended.
func (c *zkClient) finish(r *check.Record, err error) {
	r.End = c.l.h.Now()
	r.Outcome, r.Err = zkOutcome(err)
	if err != nil {
		r.Detail = err.Error()
	}
	if r.Err == check.BadVersion {
		r.Stat.Version = check.NotTold
	}
	if r.Outcome == check.Done || r.Outcome == check.Refused {
		c.heard.Store(int64(r.Begin))
	}
	c.l.h.Add(*r)
}

// zkThrottled is what the library makes of a code that it does not know: nothing
// was done, because there is too much to do, or no room on the disks.
const zkThrottled = "unknown error: -127"

// zkOutcome tells what an error means for the one who asked.
func zkOutcome(err error) (check.Outcome, string) {
	switch {
	case err == nil:
		return check.Done, ""
	case errors.Is(err, zk.ErrNoNode):
		return check.Refused, check.NoNode
	case errors.Is(err, zk.ErrNodeExists):
		return check.Refused, check.NodeExists
	case errors.Is(err, zk.ErrBadVersion):
		return check.Refused, check.BadVersion
	case errors.Is(err, zk.ErrNotEmpty):
		return check.Refused, check.NotEmpty
	case errors.Is(err, zk.ErrNoServer), err.Error() == zkThrottled: // the first was never sent
		return check.Failed, "failed"
	default:
		return check.Unknown, "unknown outcome"
	}
}

func zkStat(s *zk.Stat) check.Stat {
	return check.Stat{
		Czxid: zxid.ID(s.Czxid), Mzxid: zxid.ID(s.Mzxid), Version: int64(s.Version),
		Cversion: int64(s.Cversion), Owner: session.ID(s.EphemeralOwner),
	}
}

// answered is the transaction of the last answer: of a write its own, of a read
// that which the server had come to.
func (c *zkClient) answered() zxid.ID { return zxid.ID(c.zxid.Load()) }

var zkOpen = zk.WorldACL(zk.PermAll)

// zkFlags are the library's for the flags of a create.
func zkFlags(f check.Flag) (out int32) {
	if f&check.Ephemeral != 0 {
		out |= zk.FlagEphemeral
	}
	if f&check.Sequential != 0 {
		out |= zk.FlagSequence
	}
	return out
}

func (c *zkClient) create(path, data string, flags check.Flag) (string, error) {
	r := c.begin(check.Create, path)
	r.Data, r.Flags = data, flags
	made, err := c.conn.Create(path, []byte(data), zkFlags(flags), zkOpen)
	if err == nil {
		r.Made, r.Zxid = made, c.answered()
		r.Stat = c.born(r.Zxid, flags)
	}
	c.finish(&r, err)
	return made, err
}

// born is the Stat of a znode that was made just now. The answer does not have it.
func (c *zkClient) born(at zxid.ID, flags check.Flag) check.Stat {
	st := check.Stat{Czxid: at, Mzxid: at}
	if flags&check.Ephemeral != 0 {
		st.Owner = c.session()
	}
	return st
}

// set returns the new version.
func (c *zkClient) set(path, data string, version int32) (int32, error) {
	r := c.begin(check.Set, path)
	r.Data, r.Want = data, int64(version)
	st, err := c.conn.Set(path, []byte(data), version)
	if err == nil {
		r.Stat, r.Zxid, version = zkStat(st), c.answered(), st.Version
	}
	c.finish(&r, err)
	return version, err
}

func (c *zkClient) delete(path string) error {
	r := c.begin(check.Delete, path)
	r.Want = client.AnyVersion
	err := c.conn.Delete(path, -1)
	if err == nil {
		r.Zxid = c.answered()
	}
	c.finish(&r, err)
	return err
}

// read begins a read, linearizable by a sync before it, or of what the server at
// hand has.
func (c *zkClient) read(kind check.Kind, path string, linearizable bool) (check.Record, error) {
	r := c.begin(kind, path)
	r.Mode = check.SessionRead
	if !linearizable {
		return r, nil
	}
	r.Mode = check.Linearizable
	_, err := c.conn.Sync(path)
	return r, err
}

// done records a read. That there is nothing has been read, too.
func (c *zkClient) done(r *check.Record, err error) error {
	if err == nil || errors.Is(err, zk.ErrNoNode) {
		r.Found, r.Zxid = err == nil, c.answered()
		c.finish(r, nil)
		return err
	}
	c.finish(r, err)
	return err
}

// get returns the version, too, 0 if there is none.
func (c *zkClient) get(path string, linearizable bool) (int32, error) {
	r, err := c.read(check.Get, path, linearizable)
	if err != nil {
		return 0, err
	}
	data, st, err := c.conn.Get(path)
	if err == nil {
		r.Data, r.Stat = string(data), zkStat(st)
	}
	return int32(r.Stat.Version), c.done(&r, err)
}

func (c *zkClient) children(path string) error {
	r, err := c.read(check.Children, path, true)
	if err != nil {
		return err
	}
	r.Names, _, err = c.conn.Children(path)
	return c.done(&r, err)
}

// multi does all operations, which are creates, sets and deletes at any version, or
// none.
func (c *zkClient) multi(ops ...check.Record) error {
	r := c.begin(check.Txn, "")
	r.Ops = ops
	var asked []any
	for _, op := range ops {
		switch op.Kind {
		case check.Create:
			asked = append(asked, &zk.CreateRequest{Path: op.Path, Data: []byte(op.Data), Acl: zkOpen, Flags: zkFlags(op.Flags)})
		case check.Set:
			asked = append(asked, &zk.SetDataRequest{Path: op.Path, Data: []byte(op.Data), Version: int32(op.Want)})
		default:
			asked = append(asked, &zk.DeleteRequest{Path: op.Path, Version: int32(op.Want)})
		}
	}
	results, err := c.conn.Multi(asked...)
	if err == nil {
		r.Zxid = c.answered()
	}
	out, why := zkOutcome(err)
	blamed := false
	for i := range r.Ops {
		op := &r.Ops[i]
		op.Outcome, op.Err, op.Zxid = out, why, r.Zxid
		switch {
		case out == check.Refused && (blamed || i >= len(results) || results[i].Error == nil):
			op.Err = check.RolledBack
		case out == check.Refused:
			blamed, op.Stat.Version = true, check.NotTold
		case out == check.Done && op.Kind == check.Create:
			op.Made, op.Stat = results[i].String, c.born(r.Zxid, op.Flags)
		case out == check.Done && op.Kind == check.Set:
			op.Stat = zkStat(results[i].Stat)
		}
	}
	c.finish(&r, err)
	return err
}
