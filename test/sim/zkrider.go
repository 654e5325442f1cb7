package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/coordd/coord/internal/check"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
)

// zkActs is a function because the acts name it by way of the rider.
func zkActs() []act[*zkClient] {
	return []act[*zkClient]{
		{16, "set", (*rider).zkSet},
		{8, "set at a version", (*rider).zkSetAt},
		{12, "sync and get", (*rider).zkGet},
		{12, "get", (*rider).zkGetOld},
		{8, "exists", (*rider).zkExists},
		{5, "create", (*rider).zkCreate},
		{5, "delete", (*rider).zkDelete},
		{6, "create ephemeral", (*rider).zkEphemeral},
		{8, "enqueue", (*rider).zkEnqueue},
		{5, "dequeue", (*rider).zkDequeue},
		{6, "multi", (*rider).zkMulti},
		{6, "pipeline", (*rider).zkPipeline},
		{1, "close", func(r *rider, ctx context.Context, _ *zkClient) error { return r.close(ctx, nil) }},
	}
}

var allZKActs = zkActs()

// onZooKeeper says which riders use the ZooKeeper port.
func (r *rider) onZooKeeper() bool { return r.number%3 == 2 }

// liveZK is one session on the ZooKeeper port, from its beginning to its end.
func (r *rider) liveZK(m *machine, vanished chan struct{}) error {
	c, err := r.w.dialZK(m, r.w.cfg.sessionTimeout(), r.rnd)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.silent = c.silent
	r.mu.Unlock()
	ctx, end := context.WithCancel(context.Background())
	defer end()
	go func() {
		select {
		case <-c.over:
		case <-vanished: // it cannot hear that its session is over
		}
		end()
	}()
	r.work(ctx, m, vanished, func(ctx context.Context) error { return doOne(ctx, r, allZKActs, c) })
	r.rest(ctx, vanished)
	r.says("close")
	r.mu.Lock()
	r.silent = nil
	r.mu.Unlock()
	select {
	case <-vanished:
		if r.isSilent() {
			c.leave()
			return nil
		}
	default:
	}
	closing, cancel := context.WithTimeout(context.Background(), r.w.cfg.paces(30))
	defer cancel()
	c.close(closing)
	return nil
}

// zkDo sends requests in one packet and records those that have a record. It returns
// what became of the last one: a wire.Code if it was refused.
func (c *zkClient) zkDo(ctx context.Context, qs []wire.Request, records []*check.Record) ([]*zkCall, error) {
	c.mu.Lock()
	id := c.id
	c.mu.Unlock()
	begin := c.w.history.Now()
	calls, err := c.call(ctx, qs...)
	if err != nil {
		return nil, err // nothing was sent, so there is nothing to tell
	}
	for i, r := range records {
		k := calls[i]
		if r != nil {
			r.Client, r.Session, r.Begin, r.End = c.m.host, id, begin, c.w.history.Now()
			k.tell(r)
			c.w.history.Add(*r)
		}
		c.inspect(k)
	}
	last := calls[len(calls)-1]
	if err = last.outcome(); err == nil && last.Err != wire.OK {
		err = last.Err
	}
	return calls, err
}

// inspect looks for answers that no state of the tree explains.
func (c *zkClient) inspect(k *zkCall) {
	if k.outcome() != nil {
		return
	}
	switch k.Err {
	case wire.OK, wire.NoNode, wire.NodeExists, wire.BadVersion, wire.NotEmpty, wire.NoChildrenForEphem:
	default:
		c.w.wrong("%s: %s %s is answered with: %s", c.m.host, k.Type, k.Op.Path, k.Err)
	}
}

// tell completes the record of a call.
func (k *zkCall) tell(r *check.Record) {
	reads := r.Kind == check.Get || r.Kind == check.Children
	if err := k.outcome(); err != nil {
		r.Outcome, r.Detail = check.Unknown, err.Error()
		if reads {
			r.Outcome = check.Failed
		}
		r.Ops = slices.Clone(r.Ops)
		return
	}
	code := k.Err
	switch {
	case reads && (code == wire.OK || code == wire.NoNode):
		r.Outcome, r.Zxid, r.Found = check.Done, k.Zxid, code == wire.OK
		r.Data, r.Names, r.Stat = string(k.Data), k.Names, zkStat(&k.Stat)
	case k.Type == wire.Multi:
		k.tellMulti(r)
	case code == wire.OK:
		r.Outcome = check.Done
		k.tellDone(r, &k.Reply)
	default:
		r.Outcome, r.Err, r.Detail = check.Refused, zkCauses[code], code.String()
		r.Stat.Version = check.NotTold
	}
	if r.Err == "" && r.Outcome == check.Refused {
		r.Err = check.OtherCause
	}
}

// tellDone takes in the answer to a write. The zxid of a reply's head may be that of
// a later transaction.
func (*zkCall) tellDone(r *check.Record, p *wire.Reply) {
	switch r.Kind {
	case check.Create:
		r.Made, r.Stat, r.Zxid = p.Path, zkStat(&p.Stat), p.Stat.Czxid
	case check.Set:
		r.Stat, r.Zxid = zkStat(&p.Stat), p.Stat.Mzxid
	default: // the answer does not tell
	}
}

// tellMulti takes in the answers to the operations of a transaction.
func (k *zkCall) tellMulti(r *check.Record) {
	r.Outcome = check.Done
	for i := range r.Ops {
		op, res := &r.Ops[i], &k.Results[i]
		op.Outcome = check.Done
		if res.Type == 0 { // all of them, if one has failed
			op.Outcome, op.Err, op.Stat.Version = check.Refused, zkCauses[res.Err], check.NotTold
			if op.Err == "" {
				op.Err = check.RolledBack
			}
			r.Outcome, r.Err = check.Refused, check.RolledBack
			continue
		}
		k.tellDone(op, &res.Reply)
		r.Zxid = max(r.Zxid, op.Zxid)
	}
	for i := range r.Ops {
		r.Ops[i].Zxid = r.Zxid
	}
}

// zkCauses are the codes of what the state of the tree did not allow.
var zkCauses = map[wire.Code]string{
	wire.NoNode: check.NoNode, wire.NodeExists: check.NodeExists, wire.BadVersion: check.BadVersion, wire.NotEmpty: check.NotEmpty,
}

func zkStat(s *znode.Stat) check.Stat {
	return check.Stat{Czxid: s.Czxid, Mzxid: s.Mzxid, Version: s.Version, Cversion: s.Cversion, Owner: s.EphemeralOwner}
}

// Requests, with their records.

var zkOpen = []znode.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}

func zkWrite(kind check.Kind, typ wire.Type, path, data string, version int32) (wire.Request, *check.Record) {
	q := wire.Request{Op: wire.Op{Type: typ, Path: path, Data: []byte(data), Version: version, ACL: zkOpen}}
	return q, &check.Record{Kind: kind, Path: path, Data: data, Want: int64(version)}
}

func zkRead(kind check.Kind, typ wire.Type, path, mode string, watch bool) (wire.Request, *check.Record) {
	q := wire.Request{Op: wire.Op{Type: typ, Path: path, Watch: watch}}
	return q, &check.Record{Kind: kind, Path: path, Mode: mode, NoData: typ == wire.Exists}
}

// one does a single request.
func (c *zkClient) one(ctx context.Context, q wire.Request, r *check.Record) (*zkCall, error) {
	calls, err := c.zkDo(ctx, []wire.Request{q}, []*check.Record{r})
	if calls == nil {
		return nil, err
	}
	return calls[0], err
}

// zkMade makes what is not there.
func (r *rider) zkMade(ctx context.Context, c *zkClient, path string, err error) error {
	if !errors.Is(err, wire.NoNode) {
		return err
	}
	return r.zkMake(ctx, c, path, 0)
}

func (r *rider) zkMake(ctx context.Context, c *zkClient, path string, flags check.Flag) error {
	q, rec := zkWrite(check.Create, wire.Create2, path, r.datum(), 0)
	rec.Flags = flags
	if flags&check.Ephemeral != 0 {
		q.Flags |= wire.FlagEphemeral
	}
	if flags&check.Sequential != 0 {
		q.Flags |= wire.FlagSequential
	}
	_, err := c.one(ctx, q, rec)
	return err
}

func (r *rider) zkSet(ctx context.Context, c *zkClient) error {
	path := r.register()
	q, rec := zkWrite(check.Set, wire.SetData, path, r.datum(), -1)
	_, err := c.one(ctx, q, rec)
	return r.zkMade(ctx, c, path, err)
}

func (r *rider) zkSetAt(ctx context.Context, c *zkClient) error {
	path := r.register()
	q, rec := zkRead(check.Get, wire.GetData, path, check.SessionRead, r.rnd.IntN(2) == 0)
	k, err := c.one(ctx, q, rec)
	if err != nil {
		return r.zkMade(ctx, c, path, err)
	}
	q, rec = zkWrite(check.Set, wire.SetData, path, r.datum(), int32(k.Stat.Version))
	_, err = c.one(ctx, q, rec)
	return err
}

// zkGet reads behind a sync in the same packet: what was committed when it began.
func (r *rider) zkGet(ctx context.Context, c *zkClient) error {
	sync := wire.Request{Op: wire.Op{Type: wire.Sync, Path: "/"}}
	path := r.register()
	if r.rnd.IntN(3) == 0 {
		path = r.item()
	}
	q, rec := zkRead(check.Get, wire.GetData, path, check.Linearizable, r.rnd.IntN(2) == 0)
	_, err := c.zkDo(ctx, []wire.Request{sync, q}, []*check.Record{nil, rec})
	return err
}

func (r *rider) zkGetOld(ctx context.Context, c *zkClient) error {
	q, rec := zkRead(check.Get, wire.GetData, r.register(), check.SessionRead, r.rnd.IntN(2) == 0)
	_, err := c.one(ctx, q, rec)
	return err
}

func (r *rider) zkExists(ctx context.Context, c *zkClient) error {
	path := r.item()
	if r.rnd.IntN(2) == 0 {
		path = fmt.Sprintf("/e-%d-%d", r.era(), r.rnd.IntN(3))
	}
	q, rec := zkRead(check.Get, wire.Exists, path, check.SessionRead, true)
	_, err := c.one(ctx, q, rec)
	return err
}

func (r *rider) zkCreate(ctx context.Context, c *zkClient) error {
	return r.zkMake(ctx, c, r.item(), 0)
}

func (r *rider) zkDelete(ctx context.Context, c *zkClient) error {
	q, rec := zkWrite(check.Delete, wire.Delete, r.item(), "", -1)
	_, err := c.one(ctx, q, rec)
	return err
}

func (r *rider) zkEphemeral(ctx context.Context, c *zkClient) error {
	return r.zkMake(ctx, c, fmt.Sprintf("/e-%d-%d", r.era(), r.rnd.IntN(3)), check.Ephemeral)
}

func (r *rider) zkEnqueue(ctx context.Context, c *zkClient) error {
	flags := check.Sequential
	if r.rnd.IntN(2) == 0 {
		flags |= check.Ephemeral
	}
	path := r.queue()
	return r.zkMade(ctx, c, path, r.zkMake(ctx, c, path+"/n-", flags))
}

func (r *rider) zkDequeue(ctx context.Context, c *zkClient) error {
	q, rec := zkRead(check.Children, wire.GetChildren2, r.queue(), check.SessionRead, r.rnd.IntN(2) == 0)
	k, err := c.one(ctx, q, rec)
	if err != nil || len(k.Names) == 0 || r.rnd.IntN(2) == 0 {
		return err
	}
	q, rec = zkWrite(check.Delete, wire.Delete, r.queue()+"/"+slices.Min(k.Names), "", -1)
	_, err = c.one(ctx, q, rec)
	return err
}

// zkMulti sets a register if another one is as it was read.
func (r *rider) zkMulti(ctx context.Context, c *zkClient) error {
	from, to := r.register(), r.register()
	q, rec := zkRead(check.Get, wire.GetData, from, check.SessionRead, false)
	k, err := c.one(ctx, q, rec)
	if err != nil {
		return r.zkMade(ctx, c, from, err)
	}
	version := int32(k.Stat.Version)
	cond := wire.Op{Type: wire.Check, Path: from, Version: version}
	ops := []check.Record{check.OpCheck(from, int64(version))}
	set, made := zkWrite(check.Set, wire.SetData, to, r.datum(), -1)
	if from == to {
		set, made = zkWrite(check.Create, wire.Create2, r.item(), made.Data, 0)
	}
	ops = append(ops, *made)
	multi := wire.Request{Op: wire.Op{Type: wire.Multi}, Ops: []wire.Op{cond, set.Op}}
	_, err = c.one(ctx, multi, &check.Record{Kind: check.Txn, Ops: ops})
	return err
}

// zkPipeline sets several times without waiting in between.
func (r *rider) zkPipeline(ctx context.Context, c *zkClient) error {
	path := r.register()
	n := 2 + r.rnd.IntN(6)
	qs, records := make([]wire.Request, n), make([]*check.Record, n)
	for i := range n {
		qs[i], records[i] = zkWrite(check.Set, wire.SetData, path, r.datum(), -1)
		records[i].Seq = r.w.history.NextSeq()
	}
	_, err := c.zkDo(ctx, qs, records)
	return r.zkMade(ctx, c, path, err)
}

// isSilent is whether the rider has vanished without a word.
func (r *rider) isSilent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cutOff
}
