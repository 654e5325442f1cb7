package server

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
)

// write gives a request its number and offers it to the cluster. p.mu is held.
func (p *zkPipeline) write(r *zkRequest) {
	cmd := fsm.Command{Line: p.c.line, Seq: p.seq}
	pending := zkPending{seq: p.seq, xid: r.Xid, typ: r.Type, start: r.start}
	switch r.Type {
	case wire.CloseSession:
		cmd.Kind, pending.op = fsm.CmdClose, opClose
		p.closed = true // what stands behind it is dropped
	case wire.Auth:
		ids, err := p.identities(r)
		if err != nil {
			p.c.end(err)
			return
		}
		p.caller.Identities = ids
		cmd.Kind, cmd.Identities, pending.op = fsm.CmdIdentities, ids, opAuth
	default:
		cmd.Kind, pending.op = fsm.CmdWrite, zkOpName(r)
		cmd.Write, pending.ops = r.toWrite()
	}
	p.seq++
	p.c.out.await(pending)
	p.c.s.node.Submit(p.c.line, cmd.Seq, fsm.AppendCommand(make([]byte, 0, sizeHint(&cmd)), &cmd), p.c)
}

// identities are those of the connection with what the request proves.
func (p *zkPipeline) identities(r *zkRequest) ([]session.Identity, error) {
	g := guest{identities: slices.Clone(p.caller.Identities)}
	if len(g.identities) >= 4*maxAuths {
		return nil, fmt.Errorf("%w: more than %d credentials", errAuth, 4*maxAuths)
	}
	if err := p.c.s.auth.prove(&g, r.Scheme, r.Secret); err != nil {
		return nil, err
	}
	return g.identities, nil
}

// toWrite turns a request into a write for the log, and keeps the types of a
// multi's operations. Whatever ZooKeeper looks at in the order of its checks is left
// to the tree.
func (r *zkRequest) toWrite() (*fsm.Write, []wire.Type) {
	if r.Type != wire.Multi {
		w := &fsm.Write{Ops: make([]znode.Op, 1)}
		toOp(&w.Ops[0], &r.Op)
		return w, nil
	}
	w := &fsm.Write{Multi: true, Ops: make([]znode.Op, len(r.Ops))}
	types := make([]wire.Type, len(r.Ops))
	for i := range r.Ops {
		types[i] = r.Ops[i].Type
		toOp(&w.Ops[i], &r.Ops[i])
	}
	return w, types
}

// checkLimits refuses what no replica could take.
func (r *zkRequest) checkLimits(l *Limits) wire.Code {
	if len(r.Ops) > l.OpsPerMulti {
		return wire.BadArguments
	}
	code := checkOpLimits(&r.Op, l)
	for i := range r.Ops {
		code = cmp.Or(code, checkOpLimits(&r.Ops[i], l))
	}
	return code
}

func checkOpLimits(op *wire.Op, l *Limits) wire.Code {
	if len(op.Path) > l.PathBytes || len(op.Data) > l.NodeBytes {
		return wire.BadArguments
	}
	if len(op.ACL) > fsm.MaxACLs {
		return wire.InvalidACL
	}
	for _, a := range op.ACL {
		if len(a.Scheme) > fsm.MaxNameBytes || len(a.ID) > fsm.MaxNameBytes {
			return wire.InvalidACL
		}
	}
	return wire.OK
}

func toOp(dst *znode.Op, op *wire.Op) {
	*dst = znode.Op{Path: op.Path, Version: int64(op.Version), Version31: true}
	if !op.ACLNull { // an empty list is what is refused as none
		dst.ACL = op.ACL
	}
	switch op.Type {
	case wire.Delete:
		dst.Kind = znode.OpDelete
	case wire.Check:
		dst.Kind = znode.OpCheck
	case wire.SetData:
		dst.Kind, dst.Data = znode.OpSet, op.Data
	case wire.SetACL:
		dst.Kind = znode.OpSetACL
	default:
		dst.Kind, dst.Data, dst.Version, dst.Version31 = znode.OpCreate, op.Data, 0, false
		toCreate(dst, op)
	}
}

// toCreate finds out what kind of node is asked for. What ZooKeeper does not
// know becomes a kind that no tree knows either, so that it is refused in its turn.
func toCreate(dst *znode.Op, op *wire.Op) {
	dst.Sequential = op.Flags&wire.FlagSequential != 0
	switch {
	case op.Type == wire.CreateContainer:
		dst.Node, dst.Sequential = znode.Container, false
	case op.Type == wire.CreateTTL && (op.Flags == wire.FlagPersistentTTL || op.Flags == wire.FlagPersistentSequentialTTL):
		dst.Node, dst.TTL, dst.Sequential = znode.TTL, op.TTL, op.Flags == wire.FlagPersistentSequentialTTL
		if dst.TTL <= 0 || dst.TTL > znode.MaxTTL {
			noKind(dst)
		}
	case op.Type == wire.CreateTTL, op.Flags < 0, op.Flags > wire.FlagContainer:
		noKind(dst)
	case op.Flags == wire.FlagContainer:
		dst.Node, dst.Sequential = znode.Persistent, false // as ZooKeeper does
	case op.Flags&wire.FlagEphemeral != 0:
		dst.Node = znode.Ephemeral
	}
}

// noKind makes a create one that every tree refuses as its first check.
func noKind(dst *znode.Op) {
	dst.Node, dst.Sequential, dst.TTL = znode.Persistent, false, time.Millisecond
}

// answerWriteLocked queues the answer to a write. o.mu is held.
func (c *zkConn) answerWriteLocked(p *zkPending, r *fsm.Result) {
	h := wire.ReplyHeader{Xid: p.xid, Zxid: c.s.hub.firedZxid()}
	switch {
	case p.typ == wire.Multi && r.Kind == fsm.CmdWrite:
		var reply wire.Reply
		reply.Results = zkResults(p.ops, r)
		c.out.replyLocked(h, p.typ, &reply)
	case r.Err != nil:
		h.Err = zkCode(r.Err)
		c.out.replyLocked(h, p.typ, nil)
	case p.typ == wire.Auth:
		h.Zxid = 0
		c.out.replyLocked(h, p.typ, nil)
	case len(r.Ops) == 1:
		reply := wire.Reply{Path: r.Ops[0].Path, Stat: r.Ops[0].Stat}
		c.out.replyLocked(h, p.typ, &reply)
	default: // closeSession
		c.out.replyLocked(h, p.typ, nil)
	}
}

// zkResults are the outcomes of a multi's operations. In one that failed none has
// an answer.
func zkResults(types []wire.Type, r *fsm.Result) []wire.Result {
	out := make([]wire.Result, len(types))
	for i := range out {
		switch {
		case r.Err == nil && i < len(r.Ops):
			out[i] = wire.Result{Type: types[i], Reply: wire.Reply{Path: r.Ops[i].Path, Stat: r.Ops[i].Stat}}
		case i < len(r.Ops):
			out[i].Err = zkCode(r.Ops[i].Err)
		default: // refused as a whole
			out[i].Err = zkCode(r.Err)
		}
	}
	return out
}

// zkCode is the number of an error in ZooKeeper's protocol.
func zkCode(err error) wire.Code {
	for _, c := range zkCodes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	if err == nil {
		return wire.OK
	}
	return wire.SystemError
}

var zkCodes = []struct {
	err  error
	code wire.Code
}{
	{znode.ErrNoNode, wire.NoNode},
	{znode.ErrNodeExists, wire.NodeExists},
	{znode.ErrBadVersion, wire.BadVersion},
	{znode.ErrNotEmpty, wire.NotEmpty},
	{znode.ErrEphemeralParent, wire.NoChildrenForEphem},
	{znode.ErrNoAuth, wire.NoAuth},
	{znode.ErrInvalidACL, wire.InvalidACL},
	{znode.ErrBadPath, wire.BadArguments},
	{znode.ErrBadArguments, wire.BadArguments},
	{znode.ErrQuotaExceeded, wire.QuotaExceeded},
	{znode.ErrRolledBack, wire.RuntimeInconsistency},
	{session.ErrExpired, wire.SessionExpired},
	{session.ErrClosed, wire.SessionExpired},
	{session.ErrMoved, wire.SessionMoved},
	{fsm.ErrTooLarge, wire.BadArguments},
	{fsm.ErrLimit, wire.Throttled},
	{fsm.ErrOverloaded, wire.Throttled},
	{fsm.ErrDiskFull, wire.Throttled},
}

// zkOpName names a request for metrics.
func zkOpName(r *zkRequest) opName {
	switch r.Type {
	case wire.Create, wire.Create2, wire.CreateContainer, wire.CreateTTL:
		return opCreate
	case wire.Delete:
		return opDelete
	case wire.SetData:
		return opSet
	case wire.SetACL:
		return opSetACL
	case wire.Multi:
		return opMulti
	case wire.GetData:
		return opGet
	case wire.Exists:
		return opExists
	case wire.GetChildren, wire.GetChildren2:
		return opChildren
	case wire.GetACL:
		return opGetACL
	case wire.Sync:
		return opSync
	case wire.Reconfig:
		return opReconfig
	case wire.GetEphemerals:
		return opEphemerals
	case wire.GetAllChildrenNumber:
		return opCount
	case wire.MultiRead:
		return opMultiRead
	case wire.AddWatch, wire.SetWatches, wire.SetWatches2, wire.CheckWatches:
		return opWatch
	case wire.RemoveWatches:
		return opUnwatch
	case wire.Auth:
		return opAuth
	default:
		return opNone
	}
}
