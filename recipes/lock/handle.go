package lock

import (
	"context"
	"path"
	"sync"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/internal/planted"
	"github.com/coordd/coord/recipes/internal/hold"
	"github.com/coordd/coord/recipes/internal/settle"
)

// Handle is one acquisition. It is safe for concurrent use.
type Handle struct {
	place   *spot
	session *client.Session
	hold    *hold.Hold

	// mu guards the fields below.
	mu      sync.Mutex
	held    settle.Node // what it depends on: the queue entry, or the slot taken for it
	token   fence.Token // 0 while it is not known yet
	holds   bool        // the lock was granted
	unwatch context.CancelFunc
	release *releasing // not nil once Release was called
}

// newHandle begins to watch over a queue entry, already while it waits.
func newHandle(p *spot) *Handle {
	h := &Handle{place: p, session: p.f.c.Session(), held: p.entry}
	if p.role == roleLock { // known from the beginning
		h.token = fence.Token(p.entry.Stat.Czxid)
	}
	h.hold = hold.New(withHandle(context.Background(), h), h.session, p.opts.margin, h.lostBy, h.freeLater)
	h.watch()
	return h
}

// granted says by what the lock is held from now on, and the token.
func (h *Handle) granted(by settle.Node, token fence.Token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held, h.token, h.holds = by, token, true
	planted.Run(planted.TokenFromSequence, h)
}

// FencingToken is larger than that of every earlier holder of the lock; of which
// transaction it is the zxid, see the package comment. Hand it to the protected
// resource with each write. Tokens of different locks cannot be compared.
func (h *Handle) FencingToken() fence.Token {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.token
}

// Path is the lock's path.
func (h *Handle) Path() string { return h.place.f.path }

// Node is the path of the znode by which the lock is held: the holder's queue
// entry, or its slot of a semaphore.
func (h *Handle) Node() string { return h.node().Path }

func (h *Handle) node() settle.Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held
}

// Owner is who others see that the holder is: see the option [Owner].
func (h *Handle) Owner() string { return h.place.opts.owner }

// Slot is the number of the holder's slot of a semaphore, from 0 on; of other
// locks it is -1.
func (h *Handle) Slot() int {
	if h.place.role != roleSlot {
		return -1
	}
	n, ok := slotOf(path.Base(h.Node()))
	if !ok {
		return -1
	}
	return n
}

// Session is the session that the lock depends on.
func (h *Handle) Session() *client.Session { return h.session }

// Context is a child of nothing. It is done when the lock is lost or released;
// context.Cause is then a *LostError or ErrReleased. Its Err and Done look at
// the clock themselves, so that they are right at once after a pause of the
// process. It carries the handle for [FromContext] and the grant for
// [fence.FromContext], which names the lock by its path in the cluster, whatever
// the client's chroot.
func (h *Handle) Context() context.Context {
	return hold.Checked(h.withGrant(h.hold.Context()), h.hold.Check)
}

// Lost is closed when the lock is lost, and not by Release.
func (h *Handle) Lost() <-chan struct{} {
	h.hold.Check()
	return h.hold.Lost()
}

// Held says whether the lock is held, as far as this process can know: no
// request is made. It is false from a safety margin before the session's
// deadline on. When it is false the Context is done.
func (h *Handle) Held() bool { return h.hold.Over() == nil }

// Deadline is the moment before which nobody else can be granted the lock
// because of silence. It moves on while the session lives. Deliberate removal
// (an administrator, another client, the end of the session by its own client)
// may come earlier: the holder is told of it, and the token is for it.
func (h *Handle) Deadline() time.Time { return h.session.Deadline() }

// Remaining is the time until the lock counts as lost if nothing is heard from
// the cluster any more: until the deadline less the safety margin, 0 when it is
// over.
func (h *Handle) Remaining() time.Duration { return h.hold.Remaining() }

// Verify asks the cluster whether the lock is still held. It returns nil, or an
// error that matches ErrLost or ErrReleased, or that of the request.
func (h *Handle) Verify(ctx context.Context) error {
	if over := h.hold.Over(); over != nil {
		return over
	}
	n := h.node()
	st, ok, err := h.place.f.c.Exists(ctx, n.Path, client.Mode(client.Linearizable))
	if err != nil {
		return err
	}
	if !ok || !n.Same(st) {
		h.hold.Lose(ErrDeleted)
	}
	return h.hold.Over()
}

// Guard goes first into a [client.Client.Txn]: the transaction fails unless this
// very acquisition still holds the lock. A check of the path alone would also
// pass for a later holder.
func (h *Handle) Guard() client.Op { return h.node().Check() }
