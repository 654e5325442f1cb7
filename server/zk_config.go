package server

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/znode"
)

// zkConfigEvery is how often the leader compares what clients are told of the
// servers with what it knows of them.
const zkConfigEvery = time.Second

// keepZKConfig keeps /zookeeper/config true while this server leads. Curator reads
// it on every connect, watches it, and takes its servers from it.
func (s *Server) keepZKConfig(ctx context.Context) {
	if s.zkListener == nil {
		return
	}
	tick := time.NewTicker(zkConfigEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !s.cluster.Status().Leading {
			continue
		}
		m := s.cluster.Members(ctx)
		s.members.Store(&m)
		s.updateZKConfig(m.Members)
	}
}

// updateZKConfig sets the node if it says something else, and reports whether it
// says this already. The write is conditional on what was read, so two leaders of
// a moment cannot undo each other's.
func (s *Server) updateZKConfig(members []cluster.Member) (same bool) {
	var data []byte
	var st znode.Stat
	s.machine.View(func(v *fsm.View) {
		data, st, _ = v.Tree.Get(zkConfigPath, &znode.Caller{Trusted: true}) // it is always there
	})
	lines, version := splitZKConfig(string(data))
	want := zkConfigLines(members, lines)
	if len(want) == 0 || slices.Equal(want, lines) {
		return true
	}
	text := strings.Join(want, "\n") + fmt.Sprintf("\nversion=%x", version+1)
	s.node.Propose(&fsm.Command{Kind: fsm.CmdWrite, Write: &fsm.Write{Trusted: true, Ops: []znode.Op{{
		Kind: znode.OpSet, Path: zkConfigPath, Data: []byte(text), Version: st.Version,
	}}}}, nil)
	return false
}

// splitZKConfig takes the text apart into lines of servers and the version.
func splitZKConfig(text string) (lines []string, version uint64) {
	for line := range strings.SplitSeq(text, "\n") {
		if v, ok := strings.CutPrefix(line, "version="); ok {
			version, _ = strconv.ParseUint(v, 16, 64) // ours, or the 0 of a new tree
		} else if line != "" {
			lines = append(lines, line)
		}
	}
	return lines, version
}

// zkConfigLines is one line for each member: its number, its address between
// servers (ZooKeeper has two, ours is one), its role, and its address for clients.
// A server whose clients' address is not known at the moment keeps the one it had.
func zkConfigLines(members []cluster.Member, old []string) []string {
	var out []string
	for n, m := range numbered(members) {
		host, port, err := net.SplitHostPort(m.PeerAddress)
		if err != nil {
			continue
		}
		role := "participant"
		if m.Role == cluster.RoleJoining || m.Role == cluster.RoleObserver {
			role = "observer"
		}
		head := fmt.Sprintf("server.%d=%s:%s:%s:%s", n, bracketed(host), port, port, role)
		out = append(out, head+clientPart(m, head, old))
	}
	slices.Sort(out)
	return out
}

func clientPart(m cluster.Member, head string, old []string) string {
	if m.ZooKeeperAddress != "" {
		return ";" + m.ZooKeeperAddress
	}
	for _, line := range old {
		if rest, ok := strings.CutPrefix(line, head); ok {
			return rest
		}
	}
	return ""
}

func bracketed(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// serverNumber is the number by which ZooKeeper's tools call a server: that at the
// end of its name, if all names end in different ones, else its place in the order
// of names, from 1.
func serverNumber(peers []cluster.Peer, name string) int {
	if namesAreNumbered(peers) {
		return trailingNumber(name)
	}
	names := make([]string, len(peers))
	for i, p := range peers {
		names[i] = p.Name
	}
	slices.Sort(names)
	return cmp.Or(slices.Index(names, name)+1, 1)
}

// namesAreNumbered says that all names end in different numbers. Otherwise the
// number of a server changes when another one joins or leaves.
func namesAreNumbered(peers []cluster.Peer) bool {
	numbers := make(map[int]bool)
	for _, p := range peers {
		if n := trailingNumber(p.Name); n > 0 {
			numbers[n] = true
		}
	}
	return len(numbers) == len(peers)
}

func trailingNumber(name string) int {
	digits := name[len(strings.TrimRight(name, "0123456789")):]
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}
