package fsm

import (
	"github.com/coordd/coord/internal/planted"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

// write changes the tree, on behalf of a session or of a caller without one.
// What is refused for who asks, or by its request id, never becomes a
// transaction and takes no id.
func (m *Machine) write(c *Command) *Result {
	if c.Line.Session != 0 {
		return m.transact(c)
	}
	if err := checkIdentities(c.Write.Identities); err != nil {
		return newResult(c, StatusDone, err)
	}
	if c.Write.RequestID != "" {
		return m.request(c)
	}
	return m.transact(c)
}

// request does a write that its sender may repeat by an id, through whatever
// server: it is done once until the id's end, and refused after.
func (m *Machine) request(c *Command) *Result {
	w := c.Write
	if err := checkRequest(w, m.state.Clock); err != nil {
		return newResult(c, StatusDone, err)
	}
	known, err := m.state.Sessions.JudgeRequest(w.RequestID, w.ValidUntil, w.Hash, m.state.Clock)
	if err != nil {
		return newResult(c, StatusDone, err)
	}
	if known != nil {
		r := known.Value.(*Result).again(c)
		r.Deduplicated = true
		return r
	}
	r := m.transact(c)
	r.ValidUntil = w.ValidUntil
	err = m.state.Sessions.Remember(&session.Request{ID: w.RequestID, End: w.ValidUntil, Hash: w.Hash, Value: r})
	if err != nil {
		m.fault = err // JudgeRequest has just said that there is room
	}
	return r
}

// transact runs the ops in a transaction of their own; a refused one takes a
// transaction id too.
func (m *Machine) transact(c *Command) *Result {
	w := c.Write
	tx := m.begin(m.callerOf(c), znode.ByRequest)
	if w.Multi || len(w.Ops) != 1 {
		return m.multi(c, tx)
	}
	r := &singleResult{Result: Result{Line: c.Line, Seq: c.Seq, Attempt: c.Attempt, Kind: c.Kind, Zxid: tx.Zxid}}
	op := &w.Ops[0]
	if err := checkOp(op); err != nil {
		r.op[0] = znode.OpResult{Kind: op.Kind, Path: op.Path, Err: err}
		r.Err = err
	} else {
		r.op[0], r.Err = m.state.Tree.Apply(tx, op)
	}
	r.Ops = r.op[:]
	return &r.Result
}

func (m *Machine) multi(c *Command, tx *znode.Tx) *Result {
	w := c.Write
	r := newResult(c, StatusDone, nil)
	r.Zxid = tx.Zxid
	if !w.Multi {
		r.Err = badArguments("%d operations where one belongs", len(w.Ops))
		return r
	}
	if at, err := checkMulti(w.Ops); at < 0 {
		r.Err = err
		return r
	} else if err != nil {
		r.Ops, r.Err = refused(w.Ops, at, err)
		return r
	}
	planted.Run(planted.MapOrder, w.Ops)
	r.Ops, r.Err = m.state.Tree.Multi(tx, w.Ops)
	return r
}

// refused is the answer to a multi whose op at is refused before the tree sees
// any of them.
func refused(ops []znode.Op, at int, err error) ([]znode.OpResult, error) {
	rs := make([]znode.OpResult, len(ops))
	for i := range ops {
		rs[i] = znode.OpResult{Kind: ops[i].Kind, Path: ops[i].Path}
		switch {
		case i == at:
			rs[i].Err = err
		case i > at:
			rs[i].Err = znode.ErrRolledBack
		}
	}
	return rs, &znode.MultiError{Index: at, Err: err}
}
