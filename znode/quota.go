package znode

import (
	"fmt"
	"strconv"
	"strings"
)

// Names of the two nodes of a quota. For the subtree with the top /a they are
// below /zookeeper/quota/a.
const (
	quotaLimits = "zookeeper_limits"
	quotaStats  = "zookeeper_stats"
)

// quotaTable has the quota of each subtree that has one, by the path of its
// top. All of it follows from the nodes below /zookeeper/quota and the subtrees
// themselves. A node counts for every quota above it. The root and /zookeeper
// can have none: the statistics would have to count themselves.
type quotaTable struct{ byTop map[string]*quota }

// quota is one subtree's. Its usage is kept while the node with the limits is
// there, and shown in the node with the statistics while that is there.
type quota struct {
	limited            bool
	stats              uint32 // number of the node with the statistics; 0 = none
	count, bytes       int64  // nodes with the top one, bytes of their data
	maxCount, maxBytes int64  // hard limits; below 0 = none
}

// quotaNode takes the path of a quota's node apart.
func quotaNode(path string) (top, name string, ok bool) {
	if !strings.HasPrefix(path, pathQuotas+"/") {
		return "", "", false
	}
	top, name, _ = splitPath(path[len(pathQuotas):])
	if name != quotaLimits && name != quotaStats || top == root || inSystem(top) {
		return "", "", false
	}
	return top, name, true
}

func inSystem(path string) bool {
	return path == pathSystem || strings.HasPrefix(path, pathSystem+"/")
}

// above calls f for each quota that the node at path counts for, from the top.
func (q *quotaTable) above(path string, f func(top string, q *quota) error) error {
	if len(q.byTop) == 0 || inSystem(path) {
		return nil
	}
	for end := 1; end <= len(path); end++ {
		if end < len(path) && path[end] != '/' {
			continue
		}
		if x := q.byTop[path[:end]]; x != nil && x.limited {
			if err := f(path[:end], x); err != nil {
				return err
			}
		}
	}
	return nil
}

// allow returns ErrQuotaExceeded if so many more nodes and bytes at path would
// pass a hard limit. What does not grow is always allowed.
func (q *quotaTable) allow(path string, nodes, bytes int64) error {
	if len(q.byTop) == 0 {
		return nil
	}
	return q.above(path, func(top string, x *quota) error {
		if nodes > 0 && x.maxCount >= 0 && x.count+nodes > x.maxCount {
			return overQuota(top, "countHardLimit", x.maxCount, x.count+nodes)
		}
		if bytes > 0 && x.maxBytes >= 0 && x.bytes+bytes > x.maxBytes {
			return overQuota(top, "byteHardLimit", x.maxBytes, x.bytes+bytes)
		}
		return nil
	})
}

func overQuota(top, limit string, most, want int64) error {
	return fmt.Errorf("%w: %s of %s is %d, and this would make %d; the limit is in %s%s/%s",
		ErrQuotaExceeded, limit, top, most, want, pathQuotas, top, quotaLimits)
}

// charge counts a change at path in the quotas above it.
func (t *Tree) charge(path string, nodes, bytes int64) {
	if len(t.quotas.byTop) == 0 || nodes == 0 && bytes == 0 {
		return
	}
	_ = t.quotas.above(path, func(top string, x *quota) error {
		t.noteQuota(top, x)
		x.count += nodes
		x.bytes += bytes
		t.writeStats(top, x)
		return nil
	})
}

func (t *Tree) noteQuota(top string, x *quota) {
	if t.undo.on {
		t.undo.changedQuota(top, x)
	}
}

// writeStats shows the usage in the node with the statistics, as ZooKeeper
// does: without a new version, and without an event.
func (t *Tree) writeStats(top string, x *quota) {
	if x.stats == 0 {
		return
	}
	b := append(make([]byte, 0, 48), "count="...)
	b = strconv.AppendInt(b, x.count, 10)
	b = append(b, ",bytes="...)
	b = strconv.AppendInt(b, x.bytes, 10)
	key := childKey(pathKey(pathQuotas+top), quotaStats)
	n := t.edit(x.stats, key)
	t.replaceData(n, key, b)
	t.done(x.stats, n, key)
}

// quotaNodeCreated looks whether node i, new at path, belongs to a quota.
func (t *Tree) quotaNodeCreated(path string, i uint32) {
	top, name, ok := quotaNode(path)
	if !ok {
		return
	}
	t.noteQuota(top, t.quotas.byTop[top])
	x := t.quotas.open(top)
	if name == quotaStats {
		x.stats = i
	} else {
		x.limit(t.nodes.at(i).data())
		x.count, x.bytes = t.weigh(top)
	}
	if x.limited {
		t.writeStats(top, x)
	}
}

func (t *Tree) quotaNodeDeleted(path string) {
	top, name, ok := quotaNode(path)
	if !ok {
		return
	}
	x := t.quotas.byTop[top]
	t.noteQuota(top, x)
	if name == quotaStats {
		x.stats = 0
	} else {
		x.limited, x.maxCount, x.maxBytes, x.count, x.bytes = false, -1, -1, 0, 0
	}
	if !x.limited && x.stats == 0 {
		delete(t.quotas.byTop, top)
	}
}

func (t *Tree) quotaNodeSet(path string, n *node) {
	if top, name, ok := quotaNode(path); ok && name == quotaLimits {
		x := t.quotas.byTop[top]
		t.noteQuota(top, x)
		x.limit(n.data())
	}
}

// open returns the quota of the top, a new one if there is none.
func (q *quotaTable) open(top string) *quota {
	x := q.byTop[top]
	if x == nil {
		x = &quota{maxCount: -1, maxBytes: -1}
		q.put(top, x)
	}
	return x
}

// put enters a quota; nil takes it out.
func (q *quotaTable) put(top string, x *quota) {
	if x == nil {
		delete(q.byTop, top)
		return
	}
	if q.byTop == nil {
		q.byTop = make(map[string]*quota)
	}
	q.byTop[strings.Clone(top)] = x
}

// limit reads the data of a node with limits: "count=N,bytes=N", the limits
// that only warn, and behind it "=;byteHardLimit=N;countHardLimit=N". What it
// does not understand sets no limit, as in ZooKeeper.
func (x *quota) limit(data []byte) {
	x.limited, x.maxCount, x.maxBytes = true, -1, -1
	for field := range strings.FieldsFuncSeq(string(data), func(r rune) bool { return r == ',' || r == ';' }) {
		key, value, _ := strings.Cut(field, "=")
		n, err := strconv.ParseInt(strings.TrimSuffix(value, "="), 10, 64)
		if err != nil {
			continue
		}
		switch key {
		case "countHardLimit":
			x.maxCount = n
		case "byteHardLimit":
			x.maxBytes = n
		}
	}
}

// weigh counts the nodes of the subtree at top, and the bytes of their data.
func (t *Tree) weigh(top string) (count, bytes int64) {
	i := t.find(top)
	if i == 0 {
		return 0, 0
	}
	t.eachBelow(t.nodes.at(i), func(n *node) {
		count++
		bytes += int64(n.dataLen())
	})
	return count, bytes
}
