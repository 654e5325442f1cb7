package client

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/coordd/coord/api/coordpb"
)

// ReadOption changes one read.
type ReadOption func(*coordpb.Read)

// Mode says how fresh this read must be, in place of the client's own mode.
func Mode(m ReadMode) ReadOption {
	return func(r *coordpb.Read) {
		if m != ReadDefault {
			r.Mode = m.toProto()
		}
	}
}

// AtLeast makes the read wait until the answering server has applied
// transaction z.
func AtLeast(z Zxid) ReadOption {
	return func(r *coordpb.Read) { r.MinZxid = max(r.MinZxid, uint64(z)) }
}

// Containing makes [Client.Predecessor] look for the nearest sibling in front
// whose name contains the text. Other reads do not heed it.
func Containing(text string) ReadOption {
	return func(r *coordpb.Read) { r.Containing = text }
}

func (m ReadMode) toProto() coordpb.ReadMode {
	switch m {
	case ReadSession:
		return coordpb.ReadMode_READ_MODE_SESSION
	case ReadStale:
		return coordpb.ReadMode_READ_MODE_STALE
	default:
		return coordpb.ReadMode_READ_MODE_LINEARIZABLE
	}
}

// Get reads a node's data and Stat.
func (c *Client) Get(ctx context.Context, path string, opts ...ReadOption) (Node, error) {
	reply, err := c.read(ctx, "get", path, coordpb.Read_KIND_GET, opts)
	if err != nil {
		return Node{}, err
	}
	return nodeFromRead(path, reply), nil
}

// Exists reads a node's Stat. That there is no node is no error.
func (c *Client) Exists(ctx context.Context, path string, opts ...ReadOption) (Stat, bool, error) {
	reply, err := c.read(ctx, "exists", path, coordpb.Read_KIND_EXISTS, opts)
	if errors.Is(err, ErrNoNode) {
		return Stat{}, false, nil
	}
	if err != nil {
		return Stat{}, false, err
	}
	return statFromProto(reply.GetRead().GetStat()), reply.GetRead().GetStat() != nil, nil
}

// Children reads the names of all children, in ascending order. A very large
// list is read in several parts: then children that came or went meanwhile may
// be in it or not.
func (c *Client) Children(ctx context.Context, path string, opts ...ReadOption) ([]string, error) {
	return c.list(ctx, "children", path, coordpb.Read_KIND_CHILDREN, opts)
}

// list reads names page by page.
func (c *Client) list(ctx context.Context, name, path string, kind coordpb.Read_Kind, opts []ReadOption) ([]string, error) {
	names := []string{}
	for after := ""; ; {
		page := append(opts[:len(opts):len(opts)], func(r *coordpb.Read) { r.After = after })
		reply, err := c.read(ctx, name, path, kind, page)
		if err != nil {
			return nil, err
		}
		part := reply.GetRead().GetNames()
		names = append(names, part...)
		if !reply.GetRead().GetMore() || len(part) == 0 {
			return names, nil
		}
		after = part[len(part)-1]
	}
}

// Place is where a node stands in the queue of its siblings.
type Place struct {
	Before string // path of who stands right before it ([Containing]: of the nearest such), "" for none
	Ahead  int    // how many stand before it, whatever their names contain
	Stat   Stat   // the node's own
	Zxid   Zxid   // as in [Node]
}

// Predecessor reads the place of a node in the queue of its siblings: of those
// children of its parent whose names end in a number of ten digits or more, as
// sequential nodes' do, in the order of the numbers, and of the names where
// numbers are equal. It is one small answer however long the queue is.
func (c *Client) Predecessor(ctx context.Context, path string, opts ...ReadOption) (Place, error) {
	const name = "predecessor"
	r, err := c.newRead(name, path, opts)
	if err != nil {
		return Place{}, err
	}
	dir, child := split(r.read.Path)
	if path == "/" {
		return Place{}, &Error{Op: name, Path: path, Err: ErrBadArguments, Detail: "the root has no siblings", Index: -1}
	}
	r.read.Kind, r.read.Path, r.read.After = coordpb.Read_KIND_PREDECESSOR, dir, child
	reply, err := c.session.do(ctx, name, path, &r.call)
	if err != nil {
		return Place{}, err
	}
	at := Place{Ahead: int(reply.GetRead().GetCount()), Stat: statFromProto(reply.GetRead().GetStat()), Zxid: Zxid(reply.GetZxid())}
	if names := reply.GetRead().GetNames(); len(names) > 0 {
		parent, _ := split(path)
		at.Before = strings.TrimSuffix(parent, "/") + "/" + names[0]
	}
	return at, nil
}

// split cuts a path into that of the parent and the last name.
func split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 1)], path[i+1:]
}

// ACL reads a node's ACL and Stat. Passwords are masked for callers without the
// right to set the ACL.
func (c *Client) ACL(ctx context.Context, path string, opts ...ReadOption) ([]ACL, Stat, error) {
	reply, err := c.read(ctx, "acl", path, coordpb.Read_KIND_ACL, opts)
	if err != nil {
		return nil, Stat{}, err
	}
	return aclFromProto(reply.GetRead().GetAcl()), statFromProto(reply.GetRead().GetStat()), nil
}

// Sync returns when the server at hand has caught up with every write that was
// acknowledged before the call, and says how far that is.
func (c *Client) Sync(ctx context.Context) (Zxid, error) {
	reply, err := c.read(ctx, "sync", "/", coordpb.Read_KIND_SYNC, []ReadOption{Mode(Linearizable)})
	return Zxid(reply.GetZxid()), err
}

// Ephemerals lists the ephemeral nodes that belong to this client's session, at
// path or below, in ascending order.
func (c *Client) Ephemerals(ctx context.Context, path string, opts ...ReadOption) ([]string, error) {
	return c.EphemeralsOf(ctx, 0, path, opts...)
}

// EphemeralsOf lists the ephemeral nodes that belong to a session, whoever's it
// is, at path or below, in ascending order; session 0 is this client's own. Of
// another session's, those are left out whose parent this client may not read. A
// session that has ended or never was has none. As in [Client.Children], a very
// large list is read in several parts.
func (c *Client) EphemeralsOf(ctx context.Context, session SessionID, path string, opts ...ReadOption) ([]string, error) {
	whose := append(opts[:len(opts):len(opts)], func(r *coordpb.Read) { r.Session = uint64(session) })
	paths, err := c.list(ctx, "ephemerals", path, coordpb.Read_KIND_EPHEMERALS, whose)
	for i, p := range paths {
		paths[i] = c.root().strip(p)
	}
	return paths, err
}

// CountDescendants counts all nodes below path.
func (c *Client) CountDescendants(ctx context.Context, path string, opts ...ReadOption) (int64, error) {
	reply, err := c.read(ctx, "count", path, coordpb.Read_KIND_COUNT, opts)
	return reply.GetRead().GetCount(), err
}

func (c *Client) read(ctx context.Context, name, path string, kind coordpb.Read_Kind, opts []ReadOption) (*coordpb.Reply, error) {
	r, err := c.newRead(name, path, opts)
	if err != nil {
		return nil, err
	}
	r.read.Kind = kind
	return c.session.do(ctx, name, path, &r.call)
}

func (c *Client) newRead(name, path string, opts []ReadOption) (*readCall, error) {
	full, err := c.root().check(path, false)
	if err != nil {
		return nil, &Error{Op: name, Path: path, Err: err, Index: -1}
	}
	r := newRead()
	r.read.Kind, r.read.Path = coordpb.Read_KIND_GET, full
	r.read.Mode, r.read.MinZxid = c.core.opts.reads.toProto(), c.core.seen.Load()
	for _, opt := range opts {
		opt(&r.read)
	}
	return r, nil
}

func nodeFromRead(path string, reply *coordpb.Reply) Node {
	r := reply.GetRead()
	return Node{
		Path: path, Data: r.GetData(), Stat: statFromProto(r.GetStat()), Zxid: Zxid(reply.GetZxid()),
		Stale: r.GetStale(), Age: time.Duration(r.GetAgeMs()) * time.Millisecond,
	}
}
