package server

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
)

// zkConfigPath is where ZooKeeper's clients look for the servers.
const zkConfigPath = "/zookeeper/config"

// reconfig is ZooKeeper's operation of that name: servers that are to leave are
// removed, and one that is joining gets its vote. A server that is not there
// cannot be made to join from outside: it joins when it is started. The
// permission is checked first, as ZooKeeper does, and everything behind it waits.
func (p *zkPipeline) reconfig(r *zkRequest, caller znode.Caller) {
	ctx, cancel := p.c.context()
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, changeTime)
	defer stop()
	s := p.c.s
	log := s.log.With("op", "reconfig", "peer", p.c.guest.address, "joining", quoted(r.Joining), "leaving", quoted(r.Leaving), "members", quoted(r.Members))
	reply, code := s.reconfig(ctx, &r.Request, &caller)
	if code != wire.OK {
		log.Warn("reconfig refused", "event", "admin_refused", "err", code.String())
		p.c.refuse(r, code)
	} else {
		log.Info("reconfig done", "event", "admin_call")
		s.machine.View(func(v *fsm.View) {
			p.c.out.reply(wire.ReplyHeader{Xid: r.Xid, Zxid: v.Zxid}, wire.Reconfig, reply)
		})
		p.c.count(opReconfig, nil, r.start)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.syncing = false
	p.advanceLocked()
}

func (s *Server) reconfig(ctx context.Context, q *wire.Request, caller *znode.Caller) (*wire.Reply, wire.Code) {
	var err error
	var data []byte
	s.machine.View(func(v *fsm.View) {
		err = mayReconfig(v, caller)
		data, _, _ = v.Tree.Get(zkConfigPath, &znode.Caller{Trusted: true}) // it is always there
	})
	if err != nil {
		return nil, zkCode(err)
	}
	lines, version := splitZKConfig(string(data))
	if q.ConfigID != -1 && q.ConfigID != int64(version) {
		return nil, wire.BadVersion
	}
	members := s.cluster.Members(ctx)
	if !members.FromLeader {
		return nil, wire.NewConfigNoQuorum
	}
	if !numbersHold(q, members.Members, lines) {
		return nil, wire.BadVersion
	}
	plan, code := planReconfig(q, numbered(members.Members))
	if code != wire.OK {
		return nil, code
	}
	if code := s.carryOut(ctx, plan); code != wire.OK {
		return nil, code
	}
	return s.showZKConfig(ctx)
}

// mayReconfig refuses those who may not write the configuration.
func mayReconfig(v *fsm.View, caller *znode.Caller) error {
	list, _, err := v.Tree.ACL(zkConfigPath, &znode.Caller{Trusted: true})
	if err != nil {
		return err
	}
	if !caller.Trusted && !isSuper(caller) && !znode.Permits(list, znode.PermWrite, caller) {
		return znode.ErrNoAuth
	}
	return nil
}

// zkPlan is what a reconfig asks for.
type zkPlan struct{ leave, promote []cluster.Member }

// carryOut removes and promotes one after the other; each step is weighed against
// what the one before has left. A refusal says that too few would be left.
func (s *Server) carryOut(ctx context.Context, plan zkPlan) wire.Code {
	for _, m := range plan.promote {
		if _, err := s.promoteMember(ctx, m.ID); err != nil {
			return reconfigCode(err)
		}
	}
	for _, m := range plan.leave {
		if _, err := s.removeMember(ctx, m.ID, false); err != nil && !errors.Is(err, cluster.ErrNoMember) {
			return reconfigCode(err)
		}
	}
	return wire.OK
}

func reconfigCode(err error) wire.Code {
	if errors.Is(err, cluster.ErrUnsafe) {
		return wire.NewConfigNoQuorum
	}
	return wire.ReconfigInProgress
}

// showZKConfig waits until the configuration that clients read is that of the
// moment here, and returns it.
func (s *Server) showZKConfig(ctx context.Context) (*wire.Reply, wire.Code) {
	for {
		m := s.cluster.Members(ctx)
		if m.FromLeader && s.updateZKConfig(m.Members) {
			reply := &wire.Reply{}
			s.machine.View(func(v *fsm.View) {
				reply.Data, reply.Stat, _ = v.Tree.Get(zkConfigPath, &znode.Caller{Trusted: true})
			})
			return reply, wire.OK
		}
		select {
		case <-time.After(roundPause):
		case <-ctx.Done():
			return nil, wire.ReconfigInProgress // it is done, and not shown yet
		}
	}
}

// numbersHold says that the numbers in a reconfig mean the servers that its sender
// means. Those that are only places in an order move up when a server leaves: a
// removal that is sent again, because the answer was lost, would take the next one
// out. So they need the version of the configuration that they are from, which is
// shown in lines, and must be that of the moment.
func numbersHold(q *wire.Request, members []cluster.Member, lines []string) bool {
	return namesAreNumbered(namesOf(members)) || q.ConfigID != -1 && slices.Equal(lines, zkConfigLines(members, lines))
}

// numbered are the members by the numbers that ZooKeeper's tools call them by. Of
// two with one name it is the one that is in contact.
func numbered(members []cluster.Member) map[int]cluster.Member {
	names := namesOf(members)
	out := make(map[int]cluster.Member, len(names))
	for _, m := range members {
		if m.Role == cluster.RoleMissing {
			continue
		}
		n := serverNumber(names, m.Name)
		if old, twice := out[n]; !twice || !old.InContact {
			out[n] = m
		}
	}
	return out
}

// namesOf are the names of those that are members, each once.
func namesOf(members []cluster.Member) (out []cluster.Peer) {
	for _, m := range members {
		if p := (cluster.Peer{Name: m.Name}); m.Role != cluster.RoleMissing && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// planReconfig reads the lists of a reconfig. A number that leaves and is not there
// has left already, as with ZooKeeper.
func planReconfig(q *wire.Request, members map[int]cluster.Member) (zkPlan, wire.Code) {
	var plan zkPlan
	join, ok := serverSpecs(cmp.Or(q.Members, q.Joining))
	leave, ok2 := serverNumbers(q.Leaving)
	if !ok || !ok2 || q.Members != "" && (q.Joining != "" || q.Leaving != "") {
		return plan, wire.BadArguments
	}
	if q.Members != "" {
		leave = missingFrom(join, members)
	}
	for _, n := range leave {
		if m, ok := members[n]; ok {
			plan.leave = append(plan.leave, m)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(join)) {
		m, ok := members[n]
		votes := m.Role == cluster.RoleVoter || m.Role == cluster.RoleLeader
		switch {
		case !ok:
			return plan, wire.NewConfigNoQuorum
		case slices.Contains(leave, n), join[n] != votes && m.Role != cluster.RoleJoining:
			return plan, wire.BadArguments
		case join[n] && m.Role == cluster.RoleJoining:
			plan.promote = append(plan.promote, m)
		}
	}
	return plan, wire.OK
}

// missingFrom are the numbers of the members that a new list leaves out.
func missingFrom(list map[int]bool, members map[int]cluster.Member) (out []int) {
	for _, n := range slices.Sorted(maps.Keys(members)) {
		if _, ok := list[n]; !ok {
			out = append(out, n)
		}
	}
	return out
}

// serverSpecs reads entries like server.4=host:2888:3888:observer;2181, with
// commas or lines between them, and says of each number whether it is to vote.
func serverSpecs(text string) (map[int]bool, bool) {
	out := map[int]bool{}
	for _, entry := range listed(text) {
		key, spec, found := strings.Cut(entry, "=")
		number, isServer := strings.CutPrefix(strings.TrimSpace(key), "server.")
		n, err := strconv.Atoi(number)
		if !found || !isServer || err != nil || n < 0 || strings.TrimSpace(spec) == "" {
			return nil, false
		}
		servers, _, _ := strings.Cut(spec, ";")
		out[n] = !strings.HasSuffix(strings.ToLower(strings.TrimSpace(servers)), ":observer")
	}
	return out, true
}

func serverNumbers(text string) (out []int, ok bool) {
	for _, entry := range listed(text) {
		n, err := strconv.Atoi(entry)
		if err != nil || n < 0 {
			return nil, false
		}
		out = append(out, n)
	}
	return out, true
}

// listed splits at commas and lines, and drops what is empty.
func listed(text string) []string {
	return slices.DeleteFunc(strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' || r == ' ' }), func(s string) bool {
		return strings.HasPrefix(s, "version=")
	})
}
