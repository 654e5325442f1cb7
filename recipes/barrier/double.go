package barrier

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/settle"
)

// MaxMembers bounds the members of a Double: the transaction that opens a round
// names them all.
const MaxMembers = 4000

// Double is a barrier by name that n members enter together and leave together.
// It has no state: share it freely between goroutines. Each Enter is a member of
// its own.
type Double struct {
	c    *client.Client
	path string
	n    int
}

// NewDouble names a double barrier of n members; nothing is sent.
func NewDouble(c *client.Client, path string, n int) *Double { return &Double{c: c, path: path, n: n} }

// Path is the barrier's path.
func (d *Double) Path() string { return d.path }

// Enter returns when n members, this one among them, are there. The function that
// it returns leaves again, and returns when all of them have left, or died.
//
// If ctx ends first Enter withdraws and returns ctx's error. It returns a
// *MembersError if the barrier is in use with another n, an error that matches
// ErrRemoved when its entry is deleted by somebody, and that of the session when
// it is over.
//
// leave may be called again, from any goroutine, until it has returned nil. It
// gives up the member's place in any case: if its context is done, or ends before
// all have left, it does so without waiting for the others and returns the
// context's error.
func (d *Double) Enter(ctx context.Context) (leave func(context.Context) error, err error) {
	if d.n < 1 || d.n > MaxMembers {
		return nil, fmt.Errorf("barrier %s: %w: %d members; 1 to %d are possible", d.path, client.ErrBadArguments, d.n, MaxMembers)
	}
	if d.c.Session().Timeout() <= 0 {
		return nil, fmt.Errorf("barrier %s: %w: the client has no session", d.path, client.ErrBadArguments)
	}
	m, err := d.join(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.wait(ctx); err != nil {
		m.remove(ctx)
		return nil, err
	}
	return m.leave, nil
}

// member is one that has joined.
type member struct {
	d      *Double
	folder client.Zxid // czxid of the folder
	entry
	own  settle.Node
	last uint64 // of the round; set when it has opened

	turn  chan struct{} // cap 1: who has put something in may use the fields below
	gone  bool          // the entry is deleted, or is about to be, by ourselves
	alone bool          // all have left
}

// join puts an entry into the folder.
func (d *Double) join(ctx context.Context) (*member, error) {
	for range maxParents {
		folder, err := d.folder(ctx)
		if errors.Is(err, errAgain) {
			continue
		}
		if err != nil {
			return nil, err
		}
		ops := []client.Op{
			client.OpCheckNode(d.path, folder, 0),
			client.OpCreate(d.path+"/"+settle.Name(memberSuffix), settle.Card(d.c), client.WithEphemeral(), client.WithSequential()),
		}
		undo := func(made []client.OpResult) <-chan error { return settle.NodeOf(made[1]).Remove(d.c) }
		made, err := settle.Write(ctx, d.c, undo, ops...)
		if err == nil {
			return d.member(folder, settle.NodeOf(made[1])), nil
		}
		if !changed(err) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("barrier %s: %w", d.path, errAgain)
}

func (d *Double) member(folder client.Zxid, own settle.Node) *member {
	m := &member{d: d, folder: folder, own: own, turn: make(chan struct{}, 1)}
	m.name = strings.TrimPrefix(own.Path, d.path+"/")
	if e := entriesOf([]string{m.name}); len(e) == 1 {
		m.number = e[0].number
	}
	return m
}

// remove deletes the entry, that very one, as soon as the session can. It waits
// for that as long as ctx lasts, and a little longer.
func (m *member) remove(ctx context.Context) {
	m.gone = true
	_ = settle.Await(ctx, m.own.Remove(m.d.c), settle.Grace)
}
