package settle

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/coordd/coord/client"
)

// Node is a znode of ours, that very one: its path may come again.
type Node struct {
	Path string
	Stat client.Stat // of which the czxid and the owner tell it from others
}

// NodeOf is what a create has made.
func NodeOf(r client.OpResult) Node { return Node{r.Path, r.Stat} }

// Check fails a transaction in which the node is gone, or another one.
func (n Node) Check() client.Op {
	return client.OpCheckNode(n.Path, n.Stat.Czxid, n.Stat.EphemeralOwner)
}

// Delete deletes the node and no other.
func (n Node) Delete() client.Op {
	return client.OpDeleteNode(n.Path, n.Stat.Czxid, n.Stat.EphemeralOwner)
}

// Same says whether a Stat is that of the node, still of the same owner.
func (n Node) Same(st client.Stat) bool {
	return st.Czxid == n.Stat.Czxid && st.EphemeralOwner == n.Stat.EphemeralOwner
}

// Remove deletes the node as soon as the session can; see [Send].
func (n Node) Remove(c *client.Client) <-chan error { return Send(c, n.Delete()) }

// Gone says whether a removal that ended with err leaves the node not there.
func Gone(err error) bool { return err == nil || Missing(err) }

// Missing says that an operation on a Node has not found it: that it is gone, or
// another one.
func Missing(err error) bool {
	return errors.Is(err, client.ErrNoNode) || errors.Is(err, client.ErrBadVersion)
}

// UntilGone returns nil when there is no node at the path, or one may have come
// and gone without being seen.
func UntilGone(ctx context.Context, c *client.Client, path string) error {
	for ev, err := range c.Watch(ctx, path, client.Initial(client.ReadSession)) {
		if err != nil {
			return err
		}
		switch ev.Type {
		case client.EventAbsent, client.EventDeleted, client.EventResync:
			return nil
		default: // it is still there
		}
	}
	return ctx.Err()
}

// Name is that of a new sequential node, up to its number, as Curator names such
// nodes: the random part tells it from every other, also from one that has the same
// number because the folder was deleted and made anew meanwhile.
func Name(suffix string) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it does not fail
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("_c_%x-%x-%x-%x-%x-%s", b[:4], b[4:6], b[6:8], b[8:10], b[10:], suffix)
}

// Card is the data of a node that says no more than whose it is.
func Card(c *client.Client) []byte {
	b, err := json.Marshal(struct {
		Owner string    `json:"owner"`
		Since time.Time `json:"since"`
	}{c.Session().Name(), time.Now().UTC().Truncate(time.Millisecond)})
	if err != nil {
		return nil // a string and a time: it does not fail
	}
	return b
}
