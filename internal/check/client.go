package check

import (
	"context"
	"errors"
	"sync"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/zxid"
)

// Client does operations through a client and records them. It returns what the
// client returns.
type Client struct {
	// Client is the one that does it; what is done with it directly is not
	// recorded.
	*client.Client
	h    *History
	name string

	mu      sync.Mutex // guards below; held over submission, so that Seq is the order of it
	closing bool
}

// Client records a client under a name. Its session was opened by now, and its
// end is recorded when it comes.
func (h *History) Client(name string, c *client.Client) *Client {
	cl := &Client{Client: c, h: h, name: name}
	if s := c.Session(); s != nil && s.ID() != 0 {
		cl.follow(s)
	}
	return cl
}

// begin is a record of what is begun now.
func (c *Client) begin(kind Kind, path string) Record {
	r := Record{Kind: kind, Client: c.name, Path: path, Begin: c.h.now()}
	if s := c.Session(); s != nil {
		r.Session = s.ID()
	}
	return r
}

// end records how it ended.
func (c *Client) end(r *Record, err error) {
	r.End = c.h.now()
	r.Outcome, r.Err = outcome(err)
	if err != nil {
		r.Detail = err.Error()
	}
	c.h.Add(*r)
}

// outcome tells what an error means for the one who asked.
func outcome(err error) (Outcome, string) {
	switch {
	case err == nil:
		return Done, ""
	case errors.Is(err, client.ErrUnknownOutcome):
		return Unknown, "unknown outcome"
	case errors.Is(err, client.ErrRolledBack):
		return Refused, RolledBack
	case errors.Is(err, client.ErrNoNode):
		return Refused, NoNode
	case errors.Is(err, client.ErrNodeExists):
		return Refused, NodeExists
	case errors.Is(err, client.ErrBadVersion):
		return Refused, BadVersion
	case errors.Is(err, client.ErrNotEmpty):
		return Refused, NotEmpty
	case errors.Is(err, client.ErrEphemeralParent), errors.Is(err, client.ErrNoAuth), errors.Is(err, client.ErrQuotaExceeded):
		return Refused, OtherCause
	default:
		return Failed, "failed"
	}
}

// Create creates a znode. Flags and options go together: Ephemeral and Sequential
// need no option, Fleeting says that one of the options makes it so.
func (c *Client) Create(ctx context.Context, path, data string, flags Flag, opts ...client.CreateOption) (client.Created, error) {
	r := c.begin(Create, path)
	r.Data, r.Flags = data, flags
	made, err := c.Client.Create(ctx, path, []byte(data), append(flags.options(), opts...)...)
	if err == nil {
		r.Made, r.Stat, r.Zxid = made.Path, statOf(made.Stat), made.Stat.Czxid
	}
	c.end(&r, err)
	return made, err
}

// options are those of the client that the flags stand for.
func (f Flag) options() []client.CreateOption {
	var opts []client.CreateOption
	if f&Ephemeral != 0 {
		opts = append(opts, client.WithEphemeral())
	}
	if f&Sequential != 0 {
		opts = append(opts, client.WithSequential())
	}
	return opts
}

func statOf(s client.Stat) Stat {
	return Stat{Czxid: s.Czxid, Mzxid: s.Mzxid, Version: s.Version, Cversion: s.Cversion, Owner: s.EphemeralOwner}
}

// Set sets the data of a znode, at a version or at any (client.AnyVersion).
func (c *Client) Set(ctx context.Context, path, data string, version client.Version) (client.Stat, error) {
	r := c.begin(Set, path)
	r.Data, r.Want = data, version
	st, err := c.Client.Set(ctx, path, []byte(data), version)
	if err == nil {
		r.Stat, r.Zxid = statOf(st), st.Mzxid
	}
	c.refusedAt(&r, err)
	c.end(&r, err)
	return st, err
}

// refusedAt notes the version that a znode has instead.
func (c *Client) refusedAt(r *Record, err error) {
	var e *client.Error
	if errors.Is(err, client.ErrBadVersion) && errors.As(err, &e) {
		r.Stat.Version = e.Have
	}
}

// SetAsync is Set without waiting. Calls of one Client are recorded in the order
// in which they are submitted. done may be nil; it must not block.
func (c *Client) SetAsync(path, data string, version client.Version, done func(error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.begin(Set, path)
	r.Data, r.Want, r.Seq = data, version, c.h.NextSeq()
	return c.WriteAsync(func(results []client.OpResult, err error) {
		if err == nil {
			r.Stat, r.Zxid = statOf(results[0].Stat), results[0].Stat.Mzxid
		}
		c.refusedAt(&r, err)
		c.end(&r, err)
		if done != nil {
			done(err)
		}
	}, client.OpSet(path, []byte(data), version))
}

// Delete deletes a znode, at a version or at any.
func (c *Client) Delete(ctx context.Context, path string, version client.Version) error {
	r := c.begin(Delete, path)
	r.Want = version
	err := c.Client.Delete(ctx, path, version)
	c.refusedAt(&r, err)
	c.end(&r, err)
	return err
}

// Get reads a znode. That there is none is the error ErrNoNode, as of the client.
func (c *Client) Get(ctx context.Context, path string, mode client.ReadMode) (client.Node, error) {
	r := c.begin(Get, path)
	r.Mode = modeName(mode)
	n, err := c.Client.Get(ctx, path, client.Mode(mode))
	if err == nil {
		r.Found, r.Data, r.Stat, r.Zxid = true, string(n.Data), statOf(n.Stat), n.Zxid
	}
	c.end(&r, present(err))
	return n, err
}

// present is the error of a read less that there is nothing: it has seen that.
func present(err error) error {
	if errors.Is(err, client.ErrNoNode) {
		return nil
	}
	return err
}

// modeName is the mode as records have it: that of a client's own is
// Linearizable, as long as it was not dialed with another.
func modeName(m client.ReadMode) string {
	if m == client.ReadDefault {
		return Linearizable
	}
	return m.String()
}

// Exists reads the Stat of a znode.
func (c *Client) Exists(ctx context.Context, path string, mode client.ReadMode) (client.Stat, bool, error) {
	r := c.begin(Get, path)
	r.Mode, r.NoData = modeName(mode), true
	st, found, err := c.Client.Exists(ctx, path, client.Mode(mode))
	r.Found, r.Stat = found, statOf(st)
	c.end(&r, err)
	return st, found, err
}

// Children reads the names of the children.
func (c *Client) Children(ctx context.Context, path string, mode client.ReadMode) ([]string, error) {
	r := c.begin(Children, path)
	r.Mode = modeName(mode)
	names, err := c.Client.Children(ctx, path, client.Mode(mode))
	r.Found, r.Names = err == nil, names
	c.end(&r, present(err))
	return names, err
}

// Sync waits until the server at hand has caught up.
func (c *Client) Sync(ctx context.Context) (zxid.ID, error) {
	r := c.begin(Sync, "")
	z, err := c.Client.Sync(ctx)
	r.Zxid, r.Mode = z, Linearizable
	c.end(&r, err)
	return z, err
}

// Final reads everything at root and below it, linearizably, znode by znode, and
// looks for each path that was written and is not there: it is what lost writes
// are looked for in. Call it when all is healed and nobody writes any more.
func (c *Client) Final(ctx context.Context, root string) error {
	paths := c.h.written(root)
	for n, err := range c.Walk(ctx, root, client.WithoutData()) {
		if err != nil {
			return err
		}
		paths[n.Path] = true
	}
	for path := range paths {
		if _, err := c.Get(ctx, path, client.Linearizable); err != nil && !errors.Is(err, client.ErrNoNode) {
			return err
		}
	}
	return nil
}

// written is the set of paths at root and below that were certainly made.
func (h *History) written(root string) map[string]bool {
	paths := map[string]bool{}
	for _, r := range h.Records() {
		for _, w := range writesOf(&r) {
			if w.Outcome == Done && w.Kind == Create && within(w.Made, root) {
				paths[w.Made] = true
			}
		}
	}
	return paths
}
