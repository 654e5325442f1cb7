package check

import (
	"context"
	"errors"

	"github.com/coordd/coord/client"
)

// OpCreate is an operation of [Client.Txn].
func OpCreate(path, data string, flags Flag) Record {
	return Record{Kind: Create, Path: path, Data: data, Flags: flags}
}

// OpSet is an operation of [Client.Txn].
func OpSet(path, data string, version client.Version) Record {
	return Record{Kind: Set, Path: path, Data: data, Want: version}
}

// OpDelete is an operation of [Client.Txn].
func OpDelete(path string, version client.Version) Record {
	return Record{Kind: Delete, Path: path, Want: version}
}

// OpCheck is an operation of [Client.Txn].
func OpCheck(path string, version client.Version) Record {
	return Record{Kind: CheckAt, Path: path, Want: version}
}

// op is the operation as the client takes it.
func (r *Record) op() client.Op {
	switch r.Kind {
	case Create:
		return client.OpCreate(r.Path, []byte(r.Data), r.Flags.options()...)
	case Set:
		return client.OpSet(r.Path, []byte(r.Data), r.Want)
	case Delete:
		return client.OpDelete(r.Path, r.Want)
	default:
		return client.OpCheck(r.Path, r.Want)
	}
}

// Txn does all operations in one transaction, or none.
func (c *Client) Txn(ctx context.Context, ops ...Record) ([]client.OpResult, error) {
	r := c.begin(Txn, "")
	r.Ops = ops
	asked := make([]client.Op, len(ops))
	for i := range ops {
		asked[i] = ops[i].op()
	}
	results, err := c.Client.Txn(ctx, asked...)
	if err == nil {
		r.tell(results)
	} else {
		r.blame(err)
	}
	c.end(&r, err)
	return results, err
}

// tell fills in what a transaction that was done has made.
func (r *Record) tell(results []client.OpResult) {
	for i, res := range results {
		op := &r.Ops[i]
		op.Outcome, op.Stat = Done, statOf(res.Stat)
		switch op.Kind {
		case Create:
			op.Made, op.Zxid = res.Path, res.Stat.Czxid
		case Set:
			op.Zxid = res.Stat.Mzxid
		default: // the answer does not tell
		}
		r.Zxid = max(r.Zxid, op.Zxid)
	}
	for i := range r.Ops {
		r.Ops[i].Zxid = r.Zxid
	}
}

// blame says of the operation that failed why.
func (r *Record) blame(err error) {
	var e *client.Error
	out, why := outcome(err)
	for i := range r.Ops {
		r.Ops[i].Outcome, r.Ops[i].Err = out, why
		if out == Refused {
			r.Ops[i].Err = RolledBack
		}
	}
	if out == Refused && errors.As(err, &e) && e.Index >= 0 && e.Index < len(r.Ops) {
		r.Ops[e.Index].Err, r.Ops[e.Index].Stat.Version = why, e.Have
	}
}
