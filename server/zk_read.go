package server

import (
	"strings"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/watch"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
)

// answerRead executes what changes nothing, and refuses what cannot be done. All
// writes before it are applied here; the pipeline's lock is held.
func (c *zkConn) answerRead(r *zkRequest, caller *znode.Caller) {
	if r.refusal != wire.OK {
		c.refuse(r, r.refusal)
		return
	}
	switch r.Type {
	case wire.Auth: // of a scheme that nobody knows
		c.refuse(r, wire.AuthFailed)
		c.end(errAuth)
		return
	case wire.SASL: // the answer of a server without it
		c.out.reply(wire.ReplyHeader{Xid: r.Xid}, wire.SASL, &wire.Reply{})
		return
	default:
	}
	var err error
	c.s.machine.View(func(v *fsm.View) { err = c.executeRead(r, v, caller) })
	c.count(zkOpName(r), err, r.start)
}

// refuse answers with a code. What does not exist is the end of the connection.
func (c *zkConn) refuse(r *zkRequest, code wire.Code) {
	c.s.metrics.count(protoZooKeeper, zkOpName(r), fsm.CodeMalformed)
	c.countSent()
	if code == wire.Unimplemented {
		c.out.raw(wire.AppendUnknown(nil, r.Xid))
		c.end(malformed("%s does not exist", r.Type))
		return
	}
	h := wire.ReplyHeader{Xid: r.Xid, Zxid: c.s.hub.firedZxid(), Err: code}
	if code == wire.AuthFailed {
		h.Zxid = 0
	}
	c.out.reply(h, r.Type, nil)
}

// executeRead queues the reply and what watches ask for, all under the machine's
// read lock: no event of a later transaction can come before it, none of an earlier
// one behind.
func (c *zkConn) executeRead(r *zkRequest, v *fsm.View, caller *znode.Caller) error {
	var p wire.Reply
	code, err := wire.OK, error(nil)
	switch r.Type {
	case wire.SetWatches, wire.SetWatches2:
		if err = c.setWatches(r, v); err != nil {
			c.end(err)
		}
	case wire.AddWatch, wire.RemoveWatches, wire.CheckWatches:
		code = c.changeWatch(r)
	case wire.MultiRead:
		p.Results, err = zkReadAll(r, v, caller, c.out.maxBytes)
	default:
		err = zkLook(&r.Op, &p, v, caller)
		if r.Watch {
			if werr := c.watchRead(&r.Op, err); werr != nil {
				err = werr
			}
		}
	}
	if err != nil {
		code = zkReadCode(r.Type, err)
	}
	c.out.reply(wire.ReplyHeader{Xid: r.Xid, Zxid: v.Zxid, Err: code}, r.Type, &p)
	return err
}

// zkLook finds the answer to a read of one node.
func zkLook(op *wire.Op, p *wire.Reply, v *fsm.View, caller *znode.Caller) (err error) {
	switch op.Type {
	case wire.GetData:
		p.Data, p.Stat, err = v.Tree.Get(op.Path, caller)
	case wire.Exists:
		var ok bool
		if p.Stat, ok = v.Tree.Exists(op.Path); !ok {
			return zkAbsent(op.Path)
		}
	case wire.GetACL:
		p.ACL, p.Stat, err = v.Tree.ACL(op.Path, caller)
	case wire.GetChildren, wire.GetChildren2:
		p.Names, p.Stat, err = v.Tree.Children(op.Path, caller)
	case wire.GetAllChildrenNumber:
		var n int
		n, err = v.Tree.CountDescendants(op.Path, caller)
		p.Number = int32(n)
	case wire.GetEphemerals:
		p.Names = v.Tree.Ephemerals(caller.Session, "/")
		if op.Path != "" {
			p.Names = startingWith(p.Names, op.Path)
		}
	case wire.WhoAmI:
		p.Clients = clientInfo(caller.Identities)
	default: // no read of one node
	}
	return err
}

// zkAbsent is the answer to exists. ZooKeeper looks at a path with a zero byte only
// there.
func zkAbsent(path string) error {
	if strings.IndexByte(path, 0) >= 0 {
		return znode.ErrBadArguments
	}
	return znode.ErrNoNode
}

// zkReadCode is the code of a read that failed: reads do not check paths, a
// malformed one is just not there.
func zkReadCode(t wire.Type, err error) wire.Code {
	switch code := zkCode(err); {
	case code == wire.BadArguments && t != wire.Exists && t != wire.MultiRead:
		return wire.NoNode
	default:
		return code
	}
}

// startingWith keeps the paths that begin with a text, which need not end at a
// slash.
func startingWith(paths []string, prefix string) []string {
	var out []string
	for _, p := range paths {
		if strings.HasPrefix(p, prefix) {
			out = append(out, p)
		}
	}
	return out
}

// clientInfo shows who a connection is; of a digest the user alone.
func clientInfo(ids []session.Identity) []wire.ClientInfo {
	out := make([]wire.ClientInfo, 0, len(ids))
	for _, id := range ids {
		user := id.ID
		if id.Scheme == "digest" {
			user, _, _ = strings.Cut(user, ":")
		}
		out = append(out, wire.ClientInfo{Scheme: id.Scheme, User: user})
	}
	return out
}

// zkReadAll answers a multiRead: each for itself. One request could ask for
// gigabytes, so together the answers are bounded as what waits for a client is.
func zkReadAll(r *zkRequest, v *fsm.View, caller *znode.Caller, most int) ([]wire.Result, error) {
	out := make([]wire.Result, len(r.Ops))
	size := 0
	for i := range r.Ops {
		if err := zkLook(&r.Ops[i], &out[i].Reply, v, caller); err != nil {
			out[i] = wire.Result{Err: zkReadCode(r.Ops[i].Type, err)}
			continue
		}
		out[i].Type = r.Ops[i].Type
		if size += replyBytes(&out[i].Reply); size > most {
			return nil, &limitError{kind: fsm.ErrTooLarge, what: "bytes of the answers to a multiRead", have: int64(size), most: int64(most), setting: settingQueue}
		}
	}
	return out, nil
}

// replyBytes is about what an answer to a read takes.
func replyBytes(p *wire.Reply) int {
	n := wire.StatBytes + len(p.Data)
	for _, name := range p.Names {
		n += 4 + len(name)
	}
	return n
}

// answerSync answers a sync whose round is done.
func (c *zkConn) answerSync(r *zkRequest) {
	c.s.machine.View(func(v *fsm.View) {
		c.out.reply(wire.ReplyHeader{Xid: r.Xid, Zxid: v.Zxid}, wire.Sync, &wire.Reply{Path: r.Path})
	})
	c.count(opSync, nil, r.start)
}

// oneShot is the watch that a read with the flag sets.
func zkOneShot(t wire.Type) (watch.Kind, bool) {
	switch t {
	case wire.GetData:
		return watch.OneShotData, true
	case wire.Exists:
		return watch.OneShotExists, true
	case wire.GetChildren, wire.GetChildren2:
		return watch.OneShotChildren, true
	default:
		return 0, false
	}
}

// watchRead sets the watch of a read. One that found nothing sets none, except
// exists, whose answer "no" is what is watched.
func (c *zkConn) watchRead(op *wire.Op, err error) error {
	kind, ok := zkOneShot(op.Type)
	if !ok || err != nil && (op.Type != wire.Exists || !isNoNode(err)) {
		return nil
	}
	h := c.s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	return c.addWatchLocked(op.Path, kind)
}

// addWatchLocked registers a watch; one that is there already is fine.
func (c *zkConn) addWatchLocked(path string, kind watch.Kind) error {
	h := c.s.hub
	most := h.s.limits.WatchesPerSession
	if n := h.watches.CountOf(c.sub); n >= most && !h.watches.Has(c.sub, path, kind) {
		return &limitError{kind: fsm.ErrLimit, what: "watches of one connection", have: int64(n) + 1, most: int64(most), setting: settingWatches}
	}
	h.watches.Add(c.sub, 0, path, kind)
	return nil
}
