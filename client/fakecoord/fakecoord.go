// Package fakecoord is a stand-in for a coordd cluster in the tests of the
// client and the recipes: any number of servers over one state in memory, each
// with a listener in memory, and faults that a real cluster cannot be made to
// show on demand (a reply lost between commit and sending, a server that is
// silent, one that says goodbye). It follows the rules of the protocol for
// number lines, attaching and watches; it has no Raft, no ACLs, no disk and no
// mercy: a client that breaks a rule makes the test fail.
//
// It runs in real time and in fake time (testing/synctest). All methods may be
// called from any goroutine.
package fakecoord

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
)

// Action says what to do with a reply.
type Action int

// What can become of a reply.
const (
	Pass Action = iota // it is sent
	Drop               // the reply is not sent, the stream goes on
	Cut                // the reply is not sent and the connection breaks
)

// Cluster is the state that all servers share, and the faults.
type Cluster struct {
	t       testing.TB
	servers []*Server

	// mu guards the rest. It is held while a request is applied.
	mu       sync.Mutex
	thawed   *sync.Cond
	frozen   bool
	full     bool // the disks of the servers
	zxid     uint64
	floor    uint64 // history is known for changes behind it
	nodes    map[string]*node
	sessions map[uint64]*session
	nonces   map[string]uint64
	history  []*change
	streams  map[*stream]struct{}

	beatStreams map[*beatStream]struct{}
	wires       map[*wire]struct{}
	ends        map[uint64]coordpb.SessionEnd // of ended sessions
	nexts       map[uint64]uint64             // their first write numbers not applied
	requests    map[string]*coordpb.WriteReply
	timers      []*time.Timer // of nodes with a time to live
	onReply     func(server string, r *coordpb.Reply) Action
	onWrite     func(w *coordpb.Write)
	counts      Counts

	// Timeout is granted to each session that asks for none. PageSize is how
	// many children or nodes one reply lists.
	Timeout  time.Duration
	PageSize int
	limits   *coordpb.Limits
}

// Counts says what the cluster was asked to do.
type Counts struct {
	Opens, Attaches, Beats, BeatMessages, BeatStreams, Reads, Lists, Writes, Repeats, Skips, Messages, Events, Watches, Unwatches int
}

// New starts a cluster of n servers that ends with the test.
func New(t testing.TB, n int) *Cluster {
	t.Helper()
	c := &Cluster{
		t: t, zxid: 1 << 32, nodes: map[string]*node{"/": {children: map[string]bool{}}},
		sessions: map[uint64]*session{}, nonces: map[string]uint64{}, streams: map[*stream]struct{}{},
		requests: map[string]*coordpb.WriteReply{}, Timeout: 10 * time.Second, PageSize: 1000,
		ends: map[uint64]coordpb.SessionEnd{}, nexts: map[uint64]uint64{}, beatStreams: map[*beatStream]struct{}{}, wires: map[*wire]struct{}{},
	}
	c.thawed = sync.NewCond(&c.mu)
	for i := range n {
		s := &Server{c: c, name: fmt.Sprintf("n%d", i+1)}
		c.servers = append(c.servers, s)
		s.Start()
	}
	t.Cleanup(func() {
		c.stopTimers()
		c.Thaw()
		for _, s := range c.servers {
			s.Stop()
		}
	})
	return c
}

// FullDisks makes the servers refuse writes, as long as on is true, that do more
// than delete: the number of such a write is used up.
func (c *Cluster) FullDisks(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = on
}

// Target is what to dial, with the option that DialOption returns.
func (c *Cluster) Target() string {
	var names []string
	for _, s := range c.servers {
		names = append(names, s.name+":7420")
	}
	return strings.Join(names, ",")
}

// Server returns the server with this name, nil if there is none.
func (c *Cluster) Server(name string) *Server {
	for _, s := range c.servers {
		if s.name == name {
			return s
		}
	}
	return nil
}

// Freeze makes everything that needs a majority wait: writes, opening,
// attaching and linearizable reads.
func (c *Cluster) Freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = true
}

// Thaw ends Freeze.
func (c *Cluster) Thaw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = false
	c.thawed.Broadcast()
}

// OnReply asks f what to do with each reply before it is queued. f runs under
// the cluster's lock.
func (c *Cluster) OnReply(f func(server string, r *coordpb.Reply) Action) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onReply = f
}

// OnWrite tells f each write before it is applied, under the cluster's lock.
func (c *Cluster) OnWrite(f func(*coordpb.Write)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onWrite = f
}

// SetLimits makes later Welcomes carry limits.
func (c *Cluster) SetLimits(l *coordpb.Limits) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limits = l
}

// Counts returns what was asked so far.
func (c *Cluster) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Paths lists the paths that begin with prefix, for looking at what is left.
func (c *Cluster) Paths(prefix string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pathsLocked(prefix)
}

// Sessions counts the live sessions.
func (c *Cluster) Sessions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sessions)
}

// Watches counts the lasting watches of all streams.
func (c *Cluster) Watches() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for st := range c.streams {
		n += len(st.watches)
	}
	return n
}

// Connected says to which server a session is attached.
func (c *Cluster) Connected(id uint64) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.sessions[id]; s != nil {
		return s.server
	}
	return ""
}

// Forget drops the history of changes, so that watches cannot be resumed before
// now.
func (c *Cluster) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history, c.floor = nil, c.zxid
}

// Expire ends a session as for silence and tells its connection.
func (c *Cluster) Expire(id uint64) { c.End(id, coordpb.SessionEnd_SESSION_END_EXPIRED) }

// End ends a session for a reason and tells its connection. Unspecified is what a
// server does that is older than the field.
func (c *Cluster) End(id uint64, why coordpb.SessionEnd) {
	c.endSession(id, coordpb.Cause_CAUSE_SESSION_EXPIRED, why)
}

// ExpireSilent ends the sessions that were not heard of for their timeout and
// returns how many.
func (c *Cluster) ExpireSilent() int {
	c.mu.Lock()
	var dead []uint64
	for id, s := range c.sessions {
		if time.Since(s.heard) >= s.timeout {
			dead = append(dead, id)
		}
	}
	c.mu.Unlock()
	for _, id := range dead {
		c.Expire(id)
	}
	return len(dead)
}

// Delete deletes a node as an administrator would.
func (c *Cluster) Delete(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.zxid++
	tx := &tx{c: c, cause: coordpb.Cause_CAUSE_ADMIN}
	if tx.remove(path) {
		c.publish(tx)
	}
}
