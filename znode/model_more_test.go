package znode

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coord/session"
)

// Quotas, sessions and the reaper in the model.

const quotaTop = "/zookeeper/quota"

// quotaOf tells for a path of the form /zookeeper/quota<top>/zookeeper_xxx the top.
func (m *model) quotaOf(path string) (string, bool) {
	for _, name := range []string{"/zookeeper_limits", "/zookeeper_stats"} {
		if rest, ok := strings.CutSuffix(path, name); ok && strings.HasPrefix(rest, quotaTop+"/") {
			top := strings.TrimPrefix(rest, quotaTop)
			return top, top != "/zookeeper" && !strings.HasPrefix(top, "/zookeeper/")
		}
	}
	return "", false
}

// tops are the paths above and at path that have limits.
func (m *model) tops(path string) (tops []string) {
	if path == "/zookeeper" || strings.HasPrefix(path, "/zookeeper/") {
		return nil
	}
	for p := path; p != "/"; p = parentOf(p) {
		if _, ok := m.nodes[quotaTop+p+"/zookeeper_limits"]; ok {
			tops = append(tops, p)
		}
	}
	return tops
}

func (m *model) weigh(top string) (count, bytes int) {
	for p, n := range m.nodes {
		if p == top || strings.HasPrefix(p, top+"/") {
			count++
			bytes += len(n.data)
		}
	}
	return count, bytes
}

func (m *model) over(path string, nodes, bytes int) bool {
	for _, top := range m.tops(path) {
		limits := string(m.nodes[quotaTop+top+"/zookeeper_limits"].data)
		count, size := m.weigh(top)
		if most, ok := limitIn(limits, "countHardLimit="); ok && nodes > 0 && count+nodes > most {
			return true
		}
		if most, ok := limitIn(limits, "byteHardLimit="); ok && bytes > 0 && size+bytes > most {
			return true
		}
	}
	return false
}

func limitIn(limits, key string) (int, bool) {
	_, rest, ok := strings.Cut(limits, key)
	if !ok {
		return 0, false
	}
	digits, _, _ := strings.Cut(rest, ";")
	n, err := strconv.Atoi(digits)
	return n, err == nil && n >= 0
}

func (m *model) charge(path string, nodes, bytes int) {
	if nodes == 0 && bytes == 0 {
		return
	}
	for _, top := range m.tops(path) {
		m.showStats(top)
	}
}

func (m *model) showStats(top string) {
	n, ok := m.nodes[quotaTop+top+"/zookeeper_stats"]
	if _, limited := m.nodes[quotaTop+top+"/zookeeper_limits"]; !ok || !limited {
		return
	}
	count, bytes := m.weigh(top)
	n.data = fmt.Appendf(nil, "count=%d,bytes=%d", count, bytes)
	m.nodes[quotaTop+top+"/zookeeper_stats"] = n
}

// timesFit says whether a create may ask for its times.
func timesFit(op *Op) bool {
	whole := func(d, most time.Duration) bool { return d > 0 && d <= most && d%time.Millisecond == 0 }
	switch op.Node {
	case TTL:
		return whole(op.TTL, MaxTTL) && op.Linger == 0
	case Ephemeral:
		return (op.TTL == 0 || whole(op.TTL, MaxTTL)) && (op.Linger == 0 || whole(op.Linger, MaxLinger))
	default:
		return op.TTL == 0 && op.Linger == 0
	}
}

// newTimes changes the times of a node that is set, if that may be.
func (m *model) newTimes(op *Op, s *Stat) bool {
	if op.TTL == 0 && op.Linger == 0 {
		return true
	}
	if s.Kind != Ephemeral || op.TTL != 0 && op.TTL != -1 {
		return false
	}
	if op.TTL == -1 {
		s.TTL = 0
	}
	switch {
	case op.Linger == -1:
		s.Linger = 0
	case op.Linger < 0 || op.Linger > MaxLinger || op.Linger%time.Millisecond != 0:
		return false
	case op.Linger > 0:
		s.Linger = op.Linger
	}
	return true
}

func (m *model) endSession(tx *Tx, s session.ID, linger bool) {
	for _, p := range m.ephemerals(s) {
		n := m.nodes[p]
		if !linger || n.stat.Linger == 0 {
			m.remove(tx, p)
			continue
		}
		n.stat.Kind, n.stat.EphemeralOwner = TTL, 0
		n.stat.TTL, n.stat.Linger = n.stat.Linger, 0
		n.stat.Version++
		n.stat.Mzxid, n.stat.Mtime = tx.Zxid, tx.Time
		m.nodes[p] = n
		m.change(tx, DataChanged, p, m.stat(p))
	}
}

func (m *model) ephemerals(s session.ID) []string {
	paths := []string{}
	for p, n := range m.nodes {
		if n.stat.Kind == Ephemeral && n.stat.EphemeralOwner == s {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}

// expired returns the paths that are due.
func (m *model) expired(now int64) []string {
	paths := []string{}
	for p, n := range m.nodes {
		if len(m.children(p)) > 0 {
			continue
		}
		due := n.stat.Mtime
		switch {
		case n.stat.TTL > 0:
			due += n.stat.TTL.Milliseconds()
		case n.stat.Kind == Container && n.creates == 0:
			due += ContainerGrace.Milliseconds()
		case n.stat.Kind != Container:
			continue
		}
		if due <= now {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}

// meaning is the sentinel behind an error; details are not the model's.
func meaning(err error) error {
	for _, s := range []error{
		ErrNoNode, ErrNodeExists, ErrBadVersion, ErrNotEmpty, ErrEphemeralParent, ErrNoAuth, ErrInvalidACL,
		ErrBadPath, ErrProtected, ErrBadArguments, ErrQuotaExceeded, ErrRolledBack,
	} {
		if errors.Is(err, s) {
			return s
		}
	}
	return err
}

// raise is OpSequence: a count of creates only grows, and an ephemeral has none.
func (m *model) raise(tx *Tx, op *Op, r *OpResult) error {
	if err := m.there(op.Path); err != nil {
		return err
	}
	n := m.nodes[op.Path]
	switch {
	case !m.may(op.Path, PermAdmin, tx.Caller):
		return ErrNoAuth
	case op.Version < 0, op.Version > MaxSequence, n.stat.Kind == Ephemeral && op.Version > 0:
		return ErrBadArguments
	}
	n.creates = max(n.creates, op.Version)
	m.nodes[op.Path] = n
	r.Stat = m.stat(op.Path)
	return nil
}
