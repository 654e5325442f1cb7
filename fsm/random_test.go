package fsm

import (
	"bytes"
	"fmt"
	"math/rand"
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

// chaos makes a log as a cluster in trouble would: many sessions and servers,
// leaders that change, numbers repeated, skipped and out of order, connections
// that come too late. It looks at one machine to choose what is likely to do
// something.
type chaos struct {
	rnd    *rand.Rand
	m      *Machine
	index  uint64
	term   uint64
	clock  int64
	nonces int
	boots  map[string]uint64
	sent   []*Command // what may be sent again
	backup []byte     // the bytes of the restore that was begun last
}

var chaosServers = []string{"n1~a", "n2~b", "n3~c"}

func newChaos(seed int64, m *Machine) *chaos {
	return &chaos{rnd: rand.New(rand.NewSource(seed)), m: m, clock: startClock, boots: map[string]uint64{}}
}

// entry is the next entry of the log, for the machine to apply.
func (c *chaos) entry() (index, term uint64, data []byte) {
	c.index++
	c.clock += c.rnd.Int63n(50)
	if c.rnd.Intn(40) == 0 {
		c.clock += 20_000
	}
	if c.term == 0 || c.rnd.Intn(30) == 0 {
		c.term++
	}
	var cmds []*Command
	if c.m.EpochTerm() != c.term && c.rnd.Intn(3) > 0 {
		cmds = append(cmds, &Command{Kind: CmdNewEpoch, Epoch: &NewEpoch{
			Term: c.term, Clock: c.clock + c.rnd.Int63n(2000) - 1000, MinEpoch: 5, ClusterID: "chaos",
		}})
	}
	n := c.rnd.Intn(8)
	if c.rnd.Intn(20) == 0 {
		n = 150 // more than a chunk
	}
	for range n {
		cmds = append(cmds, c.command())
	}
	return c.index, c.term, encodeEntry(c.clock, cmds...)
}

func (c *chaos) command() *Command {
	if len(c.sent) > 0 && c.rnd.Intn(5) == 0 {
		return c.sent[c.rnd.Intn(len(c.sent))]
	}
	cmd := c.fresh()
	cmd.Attempt = uint32(c.rnd.Intn(3))
	c.sent = append(c.sent, cmd)
	if len(c.sent) > 200 {
		c.sent = c.sent[100:]
	}
	return cmd
}

func (c *chaos) fresh() *Command {
	s := c.someSession()
	k := c.rnd.Intn(30)
	if s == nil {
		k = c.rnd.Intn(2)
	}
	switch {
	case k == 0:
		return c.onServer(&Command{Kind: CmdOpen, Open: c.open()})
	case k == 1:
		server := chaosServers[c.rnd.Intn(len(chaosServers))]
		if c.rnd.Intn(4) == 0 || c.boots[server] == 0 {
			c.boots[server]++
		}
		return &Command{Kind: CmdBoot, Boot: &Boot{Server: server, Nonce: c.boots[server]}}
	case k == 2:
		return c.onServer(&Command{Kind: CmdAttach, Attach: c.attach(s)})
	case k == 3:
		return c.leaderCommand(s)
	case k == 4:
		return c.onServer(&Command{Kind: CmdTrim, Trim: []Trim{{s.ID, s.Line.Next() / 2}}})
	case k == 5:
		return &Command{Kind: CmdReap, Term: c.term, Reap: c.m.state.Tree.Expired(c.clock, 3)}
	case k <= 8:
		return c.onServer(&Command{Kind: CmdWrite, Write: c.requestWrite()})
	case k == 9 && c.rnd.Intn(4) == 0:
		return c.onSession(s, &Command{Kind: CmdClose})
	case k == 10:
		return c.onSession(s, &Command{Kind: CmdSkip, Code: codeTable[c.rnd.Intn(len(codeTable))].code})
	case k == 11:
		return c.onSession(s, &Command{Kind: CmdIdentities, Identities: c.identities()})
	case k == 12 && c.rnd.Intn(2) == 0:
		return c.onServer(c.restoring())
	}
	return c.onSession(s, &Command{Kind: CmdWrite, Write: &Write{Multi: c.rnd.Intn(4) == 0, Ops: c.ops()}})
}

// restoring is the next step of a restore, mostly, or one that is out of place.
func (c *chaos) restoring() *Command {
	s := c.m.state.restoring
	if s == nil || c.rnd.Intn(20) == 0 {
		var b bytes.Buffer
		if err := c.m.Snapshot().ForBackup().Encode(&b); err != nil {
			panic(err)
		}
		c.backup = b.Bytes()
		return beginOf(fmt.Sprintf("restore-%d", c.rnd.Intn(50)), c.backup)
	}
	if len(c.backup) != int(s.begin.Size) || c.rnd.Intn(20) == 0 || s.got == s.begin.Size {
		commit := &RestoreCommit{Nonce: s.begin.Nonce, IntoEmpty: c.rnd.Intn(10) == 0, Abandon: c.rnd.Intn(10) == 0}
		return &Command{Kind: CmdRestoreCommit, Commit: commit}
	}
	from := int(s.got) + c.rnd.Intn(20)/19
	to := min(from+1+c.rnd.Intn(len(c.backup)), len(c.backup), from+MaxRestoreChunk)
	return &Command{Kind: CmdRestoreChunk, Chunk: &RestoreChunk{Nonce: s.begin.Nonce, Offset: int64(from), Data: c.backup[min(from, to):to]}}
}

func (c *chaos) someSession() *session.Session {
	n := c.m.state.Sessions.Len()
	if n == 0 {
		return nil
	}
	skip := c.rnd.Intn(n)
	for s := range c.m.state.Sessions.All() {
		if skip--; skip < 0 {
			return s
		}
	}
	return nil
}

func (c *chaos) onSession(s *session.Session, cmd *Command) *Command {
	cmd.Line = LineRef{Session: s.ID, Generation: s.Generation}
	if c.rnd.Intn(15) == 0 {
		cmd.Line.Generation += uint64(c.rnd.Intn(2)) - 1
	}
	cmd.Seq, cmd.Ack = c.number(&s.Line)
	return cmd
}

func (c *chaos) onServer(cmd *Command) *Command {
	server := chaosServers[c.rnd.Intn(len(chaosServers))]
	cmd.Line, cmd.Seq = LineRef{Server: server, Boot: c.boots[server]}, 1
	if l := c.m.state.Sessions.ServerLine(server); l != nil {
		cmd.Seq, cmd.Ack = c.number(&l.Line)
		if c.rnd.Intn(20) > 0 {
			cmd.Line.Boot = l.Boot
		}
	}
	return cmd
}

// number is mostly the next one of the line.
func (c *chaos) number(l *session.Line) (seq, ack uint64) {
	seq = l.Next()
	switch c.rnd.Intn(12) {
	case 0:
		seq += uint64(c.rnd.Intn(3))
	case 1:
		seq -= min(seq-1, uint64(c.rnd.Intn(4)))
	}
	if c.rnd.Intn(3) == 0 {
		ack = l.Next() - min(l.Next(), uint64(c.rnd.Intn(5)))
	}
	return seq, ack
}

func (c *chaos) open() *Open {
	if c.nonces == 0 || c.rnd.Intn(5) > 0 {
		c.nonces++
	}
	o := openOf(c.nonces - min(c.nonces-1, c.rnd.Intn(3)))
	o.Protocol = session.Protocol(c.rnd.Intn(2))
	o.Identities = c.identities()
	if c.rnd.Intn(3) == 0 {
		o.Identity = fmt.Sprintf("worker-%d", c.rnd.Intn(3))
		if s := c.m.state.Sessions.ByIdentity(o.Identity); s != nil && c.rnd.Intn(2) == 0 {
			o.Expect = s.ID
		}
	}
	return o
}

func (c *chaos) attach(s *session.Session) *Attach {
	a := &Attach{
		Session: s.ID, Secret: s.Secret, Protocol: s.Protocol, Connection: s.Generation + uint64(c.rnd.Intn(3)) - 1,
		Expect: s.Generation, Nonce: nonce(c.rnd.Intn(1000) + 1), Server: chaosServers[c.rnd.Intn(3)], Boot: 1,
		Timeout: time.Duration(c.rnd.Intn(3)) * time.Second, Identities: c.identities(),
	}
	if c.rnd.Intn(10) == 0 {
		a.Secret[0]++
	}
	return a
}

func (c *chaos) leaderCommand(s *session.Session) *Command {
	watch := &Expire{Session: s.ID, Generation: s.Generation, Touched: s.Touched - uint64(c.rnd.Intn(2)), Term: c.term - uint64(c.rnd.Intn(5)/4)}
	switch c.rnd.Intn(8) {
	case 0:
		return &Command{Kind: CmdExpire, Expire: watch}
	case 1:
		return &Command{Kind: CmdKill, Kill: &Kill{Session: s.ID, Reason: session.EndReason(c.rnd.Intn(6))}}
	case 2:
		return &Command{Kind: CmdFeature, Term: c.term, Feature: 1}
	case 3:
		return &Command{Kind: CmdRemoveServer, Term: c.term, Server: chaosServers[c.rnd.Intn(3)]}
	case 4, 5:
		return &Command{Kind: CmdUnsuspect, Expire: watch}
	}
	watch.Silent = time.Duration(c.rnd.Intn(5000)-500) * time.Millisecond
	return &Command{Kind: CmdSuspect, Expire: watch}
}

func (c *chaos) requestWrite() *Write {
	w := &Write{Ops: c.ops()[:1], Trusted: c.rnd.Intn(2) == 0, Identities: c.identities()}
	if c.rnd.Intn(2) == 0 {
		w.RequestID = fmt.Sprintf("req-%d", c.rnd.Intn(60))
		w.ValidUntil = c.clock + c.rnd.Int63n(30_000) - 1000
	}
	return w
}

func (c *chaos) identities() []session.Identity {
	return [][]session.Identity{nil, {{Scheme: "digest", ID: "u:h"}}, {{Scheme: "ip", ID: "10.1.1.1"}, {Scheme: "digest", ID: "v:h"}}}[c.rnd.Intn(3)]
}

func (c *chaos) ops() []znode.Op {
	ops := make([]znode.Op, 1+c.rnd.Intn(3))
	for i := range ops {
		ops[i] = c.op()
	}
	return ops
}

func (c *chaos) op() znode.Op {
	op := znode.Op{Kind: znode.OpCreate, Path: c.path(), Version: znode.AnyVersion, ACL: znode.OpenACL}
	if c.rnd.Intn(6) == 0 {
		op.ACL = []znode.ACL{{Perms: znode.PermAll, Scheme: "digest", ID: "u:h"}, {Perms: znode.PermRead, Scheme: "world", ID: "anyone"}}
	}
	if c.rnd.Intn(8) > 0 {
		op.Data = make([]byte, c.rnd.Intn(40))
		c.rnd.Read(op.Data)
	}
	switch c.rnd.Intn(9) {
	case 0, 1:
		op.Kind = znode.OpSet
		if c.rnd.Intn(3) == 0 {
			op.TTL, op.Linger = -time.Duration(c.rnd.Intn(2)), time.Duration(c.rnd.Intn(5)-1)*time.Second
			if op.Linger < 0 {
				op.Linger = znode.Without
			}
		}
	case 2:
		op.Kind = znode.OpDelete
	case 3:
		op.Kind = znode.OpCheck
	case 4:
		op.Kind = znode.OpSetACL
	default:
		op.Node = znode.Kind(c.rnd.Intn(4))
		op.Sequential = c.rnd.Intn(3) == 0
		if op.Node == znode.TTL {
			op.TTL = time.Duration(1+c.rnd.Intn(60)) * time.Second
		}
		if op.Node == znode.Ephemeral {
			op.TTL, op.Linger = time.Duration(c.rnd.Intn(3))*time.Second, time.Duration(c.rnd.Intn(3))*time.Second
		}
	}
	if c.rnd.Intn(4) == 0 {
		op.Version = c.rnd.Int63n(3)
	}
	return op
}

func (c *chaos) path() string {
	p := fmt.Sprintf("/p%d", c.rnd.Intn(12))
	for c.rnd.Intn(3) == 0 {
		p += fmt.Sprintf("/q%d", c.rnd.Intn(4))
	}
	return p
}
