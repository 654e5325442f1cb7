package server

import (
	"fmt"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

// proposer is the part of a node that writes need.
type proposer interface {
	Submit(line fsm.LineRef, seq uint64, cmd []byte, w cluster.Waiter)
	DropLine(id session.ID, generation uint64)
	Propose(c *fsm.Command, w cluster.Waiter)
	MayWrite(line fsm.LineRef) error
	Overloaded() error
}

// write offers a numbered request to the cluster. A number once given is always
// used: what this server refuses by itself is offered as a Skip that says why,
// which takes the number and is remembered, so that the numbers behind it are
// not stuck.
func (c *conn) write(r *coordpb.Request, start int64) error {
	if err := c.checkSeq(r); err != nil {
		return err
	}
	cmd := fsm.Command{Line: c.line, Seq: r.GetSeq(), Ack: c.acked.Load()}
	op := c.command(&cmd, r)
	var w cluster.Waiter
	if r.GetSeq() > c.top || r.GetSkip() == nil {
		w = c
		c.unsent.Add(1)
		c.mu.Lock()
		c.stamps = append(c.stamps, stamp{r.GetSeq(), start, op})
		c.mu.Unlock()
	} // else it withdraws a write of this stream, whose waiter hears the answer
	c.top = max(c.top, r.GetSeq())
	c.ackTold.Store(cmd.Ack)
	c.s.node.Submit(c.line, r.GetSeq(), fsm.AppendCommand(make([]byte, 0, sizeHint(&cmd)), &cmd), w)
	return nil
}

// checkSeq refuses numbers that break the line: a new one follows the one
// before. An old one may come again, to be answered again or to be withdrawn.
func (c *conn) checkSeq(r *coordpb.Request) error {
	seq := r.GetSeq()
	switch {
	case c.session == 0:
		return malformed("a write on a stream without a session")
	case seq == 0 || r.GetId() != 0:
		return malformed("a write has a number and no id, not number %d and id %d", seq, r.GetId())
	case seq > max(c.top+1, c.nextSeq):
		return malformed("write %d comes behind %d", seq, max(c.top, c.nextSeq-1))
	}
	return nil
}

// command fills cmd in from what the client asks for.
func (c *conn) command(cmd *fsm.Command, r *coordpb.Request) opName {
	switch {
	case r.GetClose():
		cmd.Kind = fsm.CmdClose
		return opClose
	case r.GetSkip() != nil:
		cmd.Kind, cmd.Code = fsm.CmdSkip, fsm.CodeCancelled
		return opSkip
	}
	w, err := decodeWrite(r.GetWrite(), &c.s.limits)
	if err == nil {
		err = c.declined
	}
	if err == nil {
		cmd.Kind, cmd.Write = fsm.CmdWrite, w
		return opNameOf(r.GetWrite())
	}
	cmd.Kind, cmd.Code = fsm.CmdSkip, codeOf(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusals == nil {
		c.refusals = make(map[uint64]*coordpb.Error)
	}
	c.refusals[r.GetSeq()] = wireError(err)
	return opNameOf(r.GetWrite())
}

// sizeHint is about how many bytes the encoded command takes.
func sizeHint(cmd *fsm.Command) int {
	n := 64
	if cmd.Write == nil {
		return n
	}
	for i := range cmd.Write.Ops {
		op := &cmd.Write.Ops[i]
		n += 48 + len(op.Path) + len(op.Data) + 32*len(op.ACL)
	}
	return n
}

// isNoNode says whether the error is that a node is not there.
func isNoNode(err error) bool { return codeOf(err) == fsm.CodeNoNode }

// unavailable is err for a client that waited in vain.
func unavailable(err error) error {
	if codeOf(err) == fsm.CodeInternal || codeOf(err) == fsm.CodeTimeout {
		return fmt.Errorf("no quorum answers (%s): %w", err.Error(), fsm.ErrUnavailable)
	}
	return err
}

// errBehind is returned for a read that needs more than this server has.
var errBehind = fmt.Errorf("this server has not caught up with what the client has seen: %w", fsm.ErrUnavailable)
