package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/cluster/peerpb"
	"github.com/coordd/coord/fsm"
)

const (
	// maxMarksInReport bounds what one report tells; it goes on where the last
	// one that was answered ended.
	maxMarksInReport = 64
	// maxCompared bounds the indexes of which the leader keeps marks: some
	// seconds of the most writes that there can be.
	maxCompared = 256
	// disputeGrace is how long digests may differ without a majority before that
	// is called so: a server that reports a moment later may decide it.
	disputeGrace = 2 * time.Second
)

// digestMark is what one server has at an index.
type digestMark struct {
	version uint32 // of what the digest is made of; others are not compared
	digest  uint64
}

// markers is who has said what of one index.
type markers struct {
	by       map[serverID]digestMark
	disputed time.Duration // since when, on the node's clock; 0: not
}

// difference is what the leader has found of a server: up to the index equal it
// has what a majority of all voters has, and at the mark it has not.
type difference struct {
	equal uint64
	mark  fsm.Mark // of the majority
	// told is set once the server has been answered with it. A server that goes on
	// then has no such state any more: a snapshot has replaced it.
	told bool
}

// digests compares during one reign what the servers say of their states. Only a
// majority of all voters that agree on one digest at one index can convict a
// server, whoever it is: with two against two, or one against one, nobody knows
// who is wrong. It is safe for concurrent use.
type digests struct {
	mu     sync.Mutex
	marks  map[uint64]*markers
	wrong  map[serverID]difference
	equal  map[serverID]uint64 // newest index at which a server agreed with a majority
	newest uint64              // that a majority agreed on
	boots  map[serverID]uint64 // start of the server that has said it

	members []raft.Server // as of the last report
}

func newDigests() *digests {
	return &digests{
		marks: make(map[uint64]*markers), wrong: make(map[serverID]difference), equal: make(map[serverID]uint64),
		boots: make(map[serverID]uint64),
	}
}

// digestReport is what one server says of its state.
type digestReport struct {
	from    serverID
	boot    uint64 // of its start: a restart begins with another state
	version uint32
	marks   []fsm.Mark
}

// report takes down the marks of a server and compares them with what is known.
func (d *digests) report(q digestReport, members []raft.Server, now time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	again := d.renewLocked(&q, members)
	var touched []uint64
	for _, m := range q.marks[max(0, len(q.marks)-maxMarksInReport):] {
		if m.Index == 0 || m.Index%fsm.MarkEvery != 0 {
			continue
		}
		at := d.marks[m.Index]
		if at == nil {
			at = &markers{by: make(map[serverID]digestMark)}
			d.marks[m.Index] = at
		}
		at.by[q.from] = digestMark{q.version, m.Digest}
		touched = append(touched, m.Index)
	}
	d.trimLocked()
	if again {
		touched = d.indexesLocked()
	}
	for _, index := range touched {
		if at := d.marks[index]; at != nil {
			d.compareLocked(index, at, members, now)
		}
	}
}

// renewLocked forgets what does not count any more, and says whether all has to
// be compared again: a server has begun anew, or the membership is another one.
func (d *digests) renewLocked(q *digestReport, members []raft.Server) bool {
	again := d.boots[q.from] != q.boot
	if again {
		d.dropLocked(func(id serverID) bool { return id == q.from })
		d.boots[q.from] = q.boot
	}
	if slices.Equal(d.members, members) {
		return again
	}
	d.members = slices.Clone(members)
	d.dropLocked(func(id serverID) bool {
		return !slices.ContainsFunc(members, func(s raft.Server) bool { return serverID(s.ID) == id })
	})
	return true
}

// dropLocked forgets what some servers have said: they are no members any more,
// or have begun anew.
func (d *digests) dropLocked(gone func(serverID) bool) {
	del := func(id serverID, _ digestMark) bool { return gone(id) }
	for _, at := range d.marks {
		maps.DeleteFunc(at.by, del)
	}
	maps.DeleteFunc(d.wrong, func(id serverID, _ difference) bool { return gone(id) })
	maps.DeleteFunc(d.equal, func(id serverID, _ uint64) bool { return gone(id) })
	maps.DeleteFunc(d.boots, func(id serverID, _ uint64) bool { return gone(id) })
}

func (d *digests) indexesLocked() []uint64 {
	return slices.Sorted(maps.Keys(d.marks))
}

func (d *digests) trimLocked() {
	all := d.indexesLocked()
	for _, index := range all[:max(0, len(all)-maxCompared)] {
		delete(d.marks, index)
	}
}

func (d *digests) compareLocked(index uint64, at *markers, members []raft.Server, now time.Duration) {
	right, ok := majorityMark(at.by, members)
	if !ok {
		switch {
		case !differ(at.by):
			at.disputed = 0
		case at.disputed == 0:
			at.disputed = max(d.disputedSinceLocked(now), 1)
		}
		return
	}
	at.disputed = 0
	d.newest = max(d.newest, index)
	for id, m := range at.by {
		switch {
		case m.version != right.version:
		case m.digest == right.digest:
			d.agreedLocked(id, index)
		default:
			d.convictLocked(id, fsm.Mark{Index: index, Digest: right.digest})
		}
	}
}

// disputedSinceLocked is since when there has been a dispute without an end. A new
// index takes it over: under load the older ones are given up before their time is
// over.
func (d *digests) disputedSinceLocked(now time.Duration) time.Duration {
	for _, at := range d.marks {
		if at.disputed != 0 {
			now = min(now, at.disputed)
		}
	}
	return now
}

func (d *digests) agreedLocked(id serverID, index uint64) {
	if _, wrong := d.wrong[id]; !wrong {
		d.equal[id] = max(d.equal[id], index)
	}
}

// convictLocked keeps the first index at which a server differs. One that was told
// of it and goes on may differ anew.
func (d *digests) convictLocked(id serverID, right fsm.Mark) {
	if w, known := d.wrong[id]; known && w.mark.Index <= right.Index && !w.told {
		return
	}
	equal := d.equal[id]
	if equal >= right.Index { // marks of before it was restored from a snapshot
		equal = 0
	}
	d.wrong[id] = difference{equal: equal, mark: right}
}

// majorityMark returns the mark that more than half of all voters have.
func majorityMark(by map[serverID]digestMark, members []raft.Server) (digestMark, bool) {
	voters := 0
	counts := make(map[digestMark]int, 2)
	for _, s := range members {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if m, ok := by[serverID(s.ID)]; ok {
			counts[m]++
		}
	}
	for m, n := range counts {
		if n > voters/2 {
			return m, true
		}
	}
	return digestMark{}, false
}

// differ says that two servers have different digests of the same version.
func differ(by map[serverID]digestMark) bool {
	seen := make(map[uint32]uint64, 1)
	for _, m := range by {
		if other, ok := seen[m.version]; ok && other != m.digest {
			return true
		}
		seen[m.version] = m.digest
	}
	return false
}

// tell returns what was found of a server, to be told to it now.
func (d *digests) tell(id serverID) (difference, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w, ok := d.wrong[id]
	if ok {
		d.wrong[id] = difference{w.equal, w.mark, true}
	}
	return w, ok
}

// alarm says that digests have differed for a while and no majority has any of
// them; empty if not. Only servers that are present count: who stops one of two
// that differ has decided which one he believes.
func (d *digests) alarm(now time.Duration, present func(serverID) bool) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, index := range d.indexesLocked() {
		at := d.marks[index]
		if at.disputed == 0 || now-at.disputed < disputeGrace {
			continue
		}
		by := maps.Clone(at.by)
		maps.DeleteFunc(by, func(id serverID, _ digestMark) bool { return !present(id) })
		if differ(by) {
			return fmt.Sprintf("the states of the servers differ at log index %d (%s), and no majority of the voters has the same",
				index, describeMarks(by))
		}
	}
	return ""
}

func describeMarks(by map[serverID]digestMark) string {
	text := make([]string, 0, len(by))
	for _, id := range slices.Sorted(maps.Keys(by)) {
		text = append(text, fmt.Sprintf("%s %016x", id.name(), by[id].digest))
	}
	return strings.Join(text, ", ")
}

// compareDigests is the leader's part: it takes the marks of a report and says in
// the answer what there is to know of digests and levels.
func (n *Node) compareDigests(r *reign, from serverID, q *peerpb.ReportRequest, rep *peerpb.ReportReply) {
	given := make([]fsm.Mark, 0, len(q.GetDigests()))
	for _, m := range q.GetDigests() {
		given = append(given, fsm.Mark{Index: m.GetIndex(), Digest: m.GetDigest()})
	}
	r.digests.report(digestReport{from, q.GetBoot(), q.GetDigestVersion(), given}, n.members(), n.now())
	if w, wrong := r.digests.tell(from); wrong {
		rep.Differs = &peerpb.DigestMark{Index: w.mark.Index, Digest: w.mark.Digest}
		rep.EqualUpTo = w.equal
	}
	rep.Alarm = r.digests.alarm(n.now(), n.inContact)
	rep.FeatureLevel = n.machine.FeatureLevel()
}
