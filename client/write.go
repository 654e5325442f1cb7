package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/coordd/coord/api/coordpb"
)

// Create creates a node; see the CreateOptions for its kind. The parent must
// exist.
func (c *Client) Create(ctx context.Context, path string, data []byte, opts ...CreateOption) (Created, error) {
	r, err := c.one(ctx, "create", OpCreate(path, data, opts...))
	return Created{Path: r.Path, Stat: r.Stat}, err
}

// Set sets a node's data if it is at that version. Nil data and empty data
// differ. SetOptions are for ephemerals.
func (c *Client) Set(ctx context.Context, path string, data []byte, version Version, opts ...SetOption) (Stat, error) {
	r, err := c.one(ctx, "set", OpSet(path, data, version, opts...))
	return r.Stat, err
}

// Delete deletes a node if it is at that version and has no children.
func (c *Client) Delete(ctx context.Context, path string, version Version) error {
	_, err := c.one(ctx, "delete", OpDelete(path, version))
	return err
}

// SetACL sets a node's ACL if that is at version aversion (Stat.Aversion).
func (c *Client) SetACL(ctx context.Context, path string, acl []ACL, aversion Version) (Stat, error) {
	r, err := c.one(ctx, "set acl", OpSetACL(path, acl, aversion))
	return r.Stat, err
}

// Txn does all operations in one transaction, or none. On failure the results
// say for each operation what became of it, and the error is that of the one
// that failed (Error.Index). Without operations it does nothing and succeeds.
func (c *Client) Txn(ctx context.Context, ops ...Op) ([]OpResult, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	w, err := c.multi(ops)
	if err != nil {
		return nil, err
	}
	reply, err := c.write(ctx, opTxn, "", w)
	return c.results(reply), c.txnError(err, ops)
}

// one does a single operation.
func (c *Client) one(ctx context.Context, name string, op Op) (OpResult, error) {
	w := newWrite()
	if err := op.toProto(c.root(), &w.op); err != nil {
		return OpResult{}, &Error{Op: name, Path: op.path, Err: err, Index: -1}
	}
	reply, err := c.write(ctx, name, op.path, w)
	if err != nil {
		return OpResult{}, err
	}
	return c.only(reply), nil
}

// only is the result of a write with one operation.
func (c *Client) only(r *coordpb.Reply) OpResult {
	if len(r.GetResults()) == 0 {
		return OpResult{}
	}
	return c.result(r.Results[0])
}

func (c *Client) multi(ops []Op) (*writeCall, error) {
	w := newWrite()
	w.write.Multi, w.write.Ops = true, make([]*coordpb.Op, len(ops))
	for i := range ops {
		w.write.Ops[i] = new(coordpb.Op)
		if err := ops[i].toProto(c.root(), w.write.Ops[i]); err != nil {
			return nil, &Error{Op: opTxn, Path: ops[i].path, Err: err, Index: i}
		}
	}
	return w, nil
}

// write sends a write on the session's number line, or outside of it if it has
// a request id or there is no session.
func (c *Client) write(ctx context.Context, name, path string, w *writeCall) (*coordpb.Reply, error) {
	if id := requestID(ctx); id != "" || c.session.plain {
		return c.unaryWrite(ctx, name, path, &w.write, id)
	}
	return c.session.do(ctx, name, path, &w.call)
}

func (c *Client) results(r *coordpb.Reply) []OpResult {
	if r == nil {
		return nil
	}
	out := make([]OpResult, len(r.Results))
	for i, p := range r.Results {
		out[i] = c.result(p)
		if failed(r.Error) && out[i].Err == nil { // it came before the one that failed
			out[i].Err = ErrRolledBack
		}
	}
	return out
}

func (c *Client) result(p *coordpb.OpResult) OpResult {
	r := OpResult{Path: c.root().strip(p.Path), Stat: statFromProto(p.Stat)}
	if failed(p.Error) {
		r.Err = fromProto(opName(p.Kind), r.Path, "", p.Error)
	}
	return r
}

// txnError puts the position and the path of the failed operation into the
// error of a transaction.
func (c *Client) txnError(err error, ops []Op) error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) || e.fromServer == nil {
		return err
	}
	if i := int(e.fromServer.GetOpIndex()); i >= 0 && i < len(ops) {
		e.Index, e.Path = i, ops[i].path
		e.Detail = strings.TrimPrefix(e.Detail, fmt.Sprintf("operation %d: ", i)) // Index says it
	}
	return err
}

func opName(k coordpb.Op_Kind) string {
	switch k {
	case coordpb.Op_KIND_CREATE:
		return "create"
	case coordpb.Op_KIND_DELETE:
		return "delete"
	case coordpb.Op_KIND_SET:
		return "set"
	case coordpb.Op_KIND_SET_ACL:
		return "set acl"
	case coordpb.Op_KIND_CHECK:
		return "check"
	case coordpb.Op_KIND_SEQUENCE:
		return "sequence"
	default:
		return "operation"
	}
}
