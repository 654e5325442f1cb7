package znode

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

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

func (m *model) deleteEphemerals(tx *Tx, s session.ID) {
	for _, p := range m.ephemerals(s) {
		m.remove(tx, p)
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
		case n.stat.Kind == TTL:
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
