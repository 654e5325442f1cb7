package client

import (
	"context"
	"iter"

	"github.com/coordd/coord/api/coordpb"
)

// WalkOption changes a walk.
type WalkOption = ReadOption

// WithoutData leaves the nodes' data out of a walk.
func WithoutData() WalkOption { return func(r *coordpb.Read) { r.WithData = false } }

// Walk yields root and everything below it, parents before children, siblings in
// ascending order. It reads in pages: what changes meanwhile may be seen or not.
// An error is the last thing it yields.
func (c *Client) Walk(ctx context.Context, root string, opts ...WalkOption) iter.Seq2[Node, error] {
	return func(yield func(Node, error) bool) {
		opts := append([]ReadOption{func(r *coordpb.Read) { r.WithData = true }}, opts...)
		for after := ""; ; {
			page := append(opts[:len(opts):len(opts)], func(r *coordpb.Read) { r.After = after })
			reply, err := c.read(ctx, "walk", root, coordpb.Read_KIND_WALK, page)
			if err != nil {
				yield(Node{}, err)
				return
			}
			nodes := reply.GetRead().GetNodes()
			for _, n := range nodes {
				after = n.GetPath()
				out := Node{
					Path: c.root().strip(after), Data: n.GetData(), Stat: statFromProto(n.GetStat()),
					Zxid: Zxid(reply.GetZxid()), Denied: n.GetDenied(),
				}
				if !yield(out, nil) {
					return
				}
			}
			if !reply.GetRead().GetMore() || len(nodes) == 0 {
				return
			}
		}
	}
}
