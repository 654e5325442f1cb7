package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/fsm"
)

func threeVoters() []raft.Server {
	return []raft.Server{
		{ID: "n1~1", Suffrage: raft.Voter}, {ID: "n2~1", Suffrage: raft.Voter}, {ID: "n3~1", Suffrage: raft.Voter},
	}
}

func marksOf(digest uint64, indexes ...uint64) (out []fsm.Mark) {
	for _, i := range indexes {
		out = append(out, fsm.Mark{Index: i * fsm.MarkEvery, Digest: digest + i})
	}
	return out
}

func everyone(serverID) bool { return true }

func TestOnlyAMajorityOfAllVotersConvicts(t *testing.T) {
	d := newDigests()
	say := func(id serverID, digest uint64, indexes ...uint64) {
		d.report(digestReport{from: id, boot: 1, version: 1, marks: marksOf(digest, indexes...)}, threeVoters(), time.Second)
	}
	say("n1~1", 100, 1, 2, 3)
	say("n3~1", 100, 1, 2)
	say("n2~1", 100, 1, 2)
	say("n3~1", 500, 3)
	if _, wrong := d.tell("n3~1"); wrong {
		t.Fatal("convicted by one voter of three")
	}
	say("n2~1", 100, 3, 4)
	say("n1~1", 100, 4)
	say("n3~1", 500, 4)
	w, wrong := d.tell("n3~1")
	if !wrong || w.mark != marksOf(100, 3)[0] || w.equal != 2*fsm.MarkEvery {
		t.Errorf("n3: %v, %+v", wrong, w)
	}
	for _, id := range []serverID{"n1~1", "n2~1"} {
		if _, wrong := d.tell(id); wrong {
			t.Errorf("%s is said to be wrong", id)
		}
	}
	if a := d.alarm(time.Hour, everyone); a != "" {
		t.Errorf("alarm although there is a majority: %s", a)
	}
	d.report(digestReport{from: "n3~1", boot: 2, version: 1}, threeVoters(), time.Second)
	if _, wrong := d.tell("n3~1"); wrong {
		t.Error("a start of a server is convicted for what an earlier one had")
	}
}

// A state that was wrong can be replaced by a snapshot, and what made it wrong can
// make the next one wrong: the server knows nothing of the first index any more.
func TestServerThatDiffersAnewIsToldOfThat(t *testing.T) {
	d := newDigests()
	say := func(id serverID, digest uint64, index uint64) {
		d.report(digestReport{from: id, boot: 1, version: 1, marks: marksOf(digest, index)}, threeVoters(), time.Second)
	}
	for _, step := range []struct{ index, digest, told uint64 }{{1, 100, 0}, {2, 500, 2}, {3, 100, 2}, {4, 500, 4}} {
		say("n1~1", 100, step.index)
		say("n2~1", 100, step.index)
		say("n3~1", step.digest, step.index)
		if w, wrong := d.tell("n3~1"); wrong != (step.told != 0) || w.mark.Index != step.told*fsm.MarkEvery {
			t.Errorf("after index %d: %v, of %d", step.index, wrong, w.mark.Index/fsm.MarkEvery)
		}
	}
}

// Of five, three that agree convict two, whether those agree or not. Two that agree
// convict nobody, though the others are three.
func TestTwoOfFiveThatAreWrongAlikeAreConvicted(t *testing.T) {
	five := append(threeVoters(), raft.Server{ID: "n4~1", Suffrage: raft.Voter}, raft.Server{ID: "n5~1", Suffrage: raft.Voter})
	for _, c := range []struct {
		digests [5]uint64
		wrong   int
		alarm   bool
	}{
		{[5]uint64{7, 7, 1, 1, 1}, 2, false},
		{[5]uint64{7, 8, 1, 1, 1}, 2, false},
		{[5]uint64{7, 7, 1, 1, 9}, 0, true},
		{[5]uint64{7, 7, 8, 8, 8}, 2, false}, // of the leader, whoever it is, nothing is believed either
		{[5]uint64{1, 1, 1, 1, 1}, 0, false},
	} {
		d, wrong := newDigests(), 0
		for i, s := range five {
			d.report(digestReport{from: serverID(s.ID), boot: 1, version: 1, marks: marksOf(c.digests[i], 5)}, five, time.Second)
		}
		for i, s := range five {
			if _, is := d.tell(serverID(s.ID)); is {
				wrong++
				if i > 1 {
					t.Errorf("%v: %s is convicted", c.digests, s.ID)
				}
			}
		}
		if a := d.alarm(time.Hour, everyone); wrong != c.wrong || (a != "") != c.alarm {
			t.Errorf("%v: %d are convicted, alarm %q", c.digests, wrong, a)
		}
	}
}

func TestDifferenceWithoutMajorityIsAnAlarmWhileBothAreThere(t *testing.T) {
	d := newDigests()
	voters := append(threeVoters(), raft.Server{ID: "n4~1", Suffrage: raft.Voter}, raft.Server{ID: "o1~1", Suffrage: raft.Nonvoter})
	for id, digest := range map[serverID]uint64{"n1~1": 1, "n2~1": 1, "n3~1": 7, "n4~1": 7, "o1~1": 7} {
		d.report(digestReport{from: id, boot: 1, version: 1, marks: marksOf(digest, 5)}, voters, time.Second)
		if w, wrong := d.tell(id); wrong {
			t.Errorf("two against two convict %s: %+v", id, w)
		}
	}
	if a := d.alarm(time.Second+disputeGrace/2, everyone); a != "" {
		t.Errorf("alarm at once: %s", a)
	}
	a := d.alarm(time.Second+disputeGrace, everyone)
	if !strings.Contains(a, "log index 320") || !strings.Contains(a, "n3") {
		t.Errorf("alarm %q", a)
	}
	only := func(id serverID) bool { return id == "n1~1" || id == "n2~1" }
	if a := d.alarm(time.Hour, only); a != "" {
		t.Errorf("alarm about servers that were stopped: %s", a)
	}
	d.report(digestReport{from: "n1~1", boot: 1, version: 1}, voters[:3], time.Minute)
	if w, wrong := d.tell("n3~1"); !wrong || w.equal != 0 {
		t.Errorf("with n4 removed n1 and n2 are a majority of three; n3: %v %+v", wrong, w)
	}
}

// However fast a cluster writes, a dispute that goes on becomes an alarm, though
// each index is given up long before.
func TestDisputeUnderLoadBecomesAnAlarm(t *testing.T) {
	d := newDigests()
	two := threeVoters()[:2]
	now := time.Second
	for end := now + 2*disputeGrace; now < end; now += 100 * time.Millisecond {
		first := uint64(now/time.Millisecond) * maxMarksInReport
		var indexes []uint64
		for i := range uint64(maxMarksInReport) {
			indexes = append(indexes, first+i)
		}
		d.report(digestReport{from: "n1~1", boot: 1, version: 1, marks: marksOf(100, indexes...)}, two, now)
		d.report(digestReport{from: "n2~1", boot: 1, version: 1, marks: marksOf(500, indexes...)}, two, now)
	}
	if a := d.alarm(now, everyone); a == "" {
		t.Errorf("no alarm after %s of dispute", 2*disputeGrace)
	}
	if a := d.alarm(time.Second+disputeGrace/2, everyone); a != "" {
		t.Errorf("alarm before its time: %s", a)
	}
}

func TestDigestsOfOtherVersionsAreNotCompared(t *testing.T) {
	d := newDigests()
	for i, id := range []serverID{"n1~1", "n2~1", "n3~1"} {
		d.report(digestReport{from: id, boot: 1, version: uint32(1 + i/2), marks: marksOf(uint64(10*(i/2)), 1)}, threeVoters(), time.Second)
	}
	if w, wrong := d.tell("n3~1"); wrong {
		t.Errorf("the one with another version is said to be wrong: %+v", w)
	}
	if a := d.alarm(time.Hour, everyone); a != "" {
		t.Errorf("alarm: %s", a)
	}
}

func TestComparisonIsBounded(t *testing.T) {
	d := newDigests()
	for i := uint64(1); i < 3*maxCompared; i++ {
		d.report(digestReport{from: "n1~1", boot: 1, version: 1, marks: marksOf(1, i)}, threeVoters(), time.Second)
	}
	d.report(digestReport{from: "n2~1", boot: 1, version: 1, marks: []fsm.Mark{{Index: 7, Digest: 1}}}, threeVoters(), time.Second)
	if len(d.marks) != maxCompared {
		t.Errorf("%d indexes are kept, want %d", len(d.marks), maxCompared)
	}
}

// distorted makes the named servers of a world go wrong at an index.
func distorted(at uint64, names ...string) func(*Config) {
	return func(c *Config) {
		for _, n := range names {
			if c.Name == n {
				c.Distort = func(index uint64, v *fsm.View) {
					if index >= at {
						v.Clock = max(v.Clock, 1<<50)
					}
				}
			}
		}
	}
}

// firstWrong is the index from which servers are made to differ, and the bounds
// that the message has to name.
const firstWrong = 2*fsm.MarkEvery + 17

// fatal is why the server has cut itself off; nil if it has not.
func (h *host) fatal() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.fatals) == 0 {
		return nil
	}
	return h.fatals[0]
}

// end stops a server that has cut itself off.
func (h *host) end() {
	h.stop()
	<-h.done
	h.node, h.dead = nil, true
}

// writeUntil makes writes, one to an entry, until a running server other than
// without has applied the entry at index.
func (w *world) writeUntil(index uint64, without string) {
	w.t.Helper()
	applied := func() bool {
		for name, h := range w.hosts {
			if name != without && h.node != nil && h.node.Machine().Index() < index {
				return false
			}
		}
		return true
	}
	for i := 0; !applied(); i++ {
		for name, h := range w.hosts {
			if name != without && h.node != nil {
				_, _ = w.create(name, fmt.Sprintf("/w%d-%s-%d", index, name, i))
				break
			}
		}
	}
}

func TestServerWhoseStateDiffersStopsAndStaysStopped(t *testing.T) {
	for _, name := range []string{"n1", "n2", "n3"} { // n1 forms the cluster, and leads at first
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 3, distorted(firstWrong, name), func(w *world) {
				w.start()
				w.awaitFormed()
				w.writeUntil(firstWrong-1, "")
				bad := w.hosts[name]
				w.eventually(time.Minute, "the server stops", func() bool {
					w.writeUntil(bad.node.Machine().Index()+1, name)
					return bad.fatal() != nil
				})
				text := bad.fatal().Error()
				for _, want := range []string{"above 128, and up to 192", "wipe", "rejoin as new"} {
					if !strings.Contains(text, want) {
						t.Errorf("%q does not say %q", text, want)
					}
				}
				bad.end()
				w.awaitLeader()
				w.writeUntil(5*fsm.MarkEvery, name)
				time.Sleep(2 * disputeGrace)
				for _, h := range w.hosts {
					if h != bad && (h.fatal() != nil || h.node.Alarm() != "") {
						t.Errorf("%s: %v, alarm %q", h.peer.Name, h.fatal(), h.node.Alarm())
					}
				}
				if err := w.tryStart(name); !errors.Is(err, errStateDiffers) || !strings.Contains(err.Error(), bad.dir) {
					t.Errorf("it starts again: %v", err)
				}
				w.wipe(name)
				w.tune = nil
				w.start(name)
				w.awaitFormed()
			})
		})
	}
}

func TestDifferenceOfTwoIsAnAlarmAndStopsSnapshots(t *testing.T) {
	inFakeTime(t, 2, distorted(firstWrong, "n2"), func(w *world) {
		w.start()
		w.awaitFormed()
		w.writeUntil(4*fsm.MarkEvery, "")
		w.eventually(20*time.Second, "an alarm at both", func() bool {
			return w.node("n1").Alarm() != "" && w.node("n2").Alarm() != ""
		})
		for _, h := range w.hosts {
			if h.fatal() != nil {
				t.Errorf("%s stopped although nobody knows who is wrong: %v", h.peer.Name, h.fatal())
			}
			if _, err := h.node.Snapshot(); !errors.Is(err, ErrDigestAlarm) {
				t.Errorf("%s writes a snapshot: %v", h.peer.Name, err)
			}
		}
	})
}

// Whatever servers go through, equal states are never said to differ: restarts
// from snapshots, snapshots that are installed, elections, suffixes of the log
// that are cut off.
func TestEqualStatesNeverRaiseAnAlarm(t *testing.T) {
	inFakeTime(t, 3, func(c *Config) { c.SnapshotLogSize = 1 << 20 }, func(w *world) {
		w.start()
		w.awaitFormed()
		for round := range 4 {
			names := []string{"n1", "n2", "n3"}
			away := names[round%3]
			w.writeUntil(w.node(names[(round+1)%3]).Machine().Index()+fsm.MarkEvery+7, "")
			w.kill(away)
			w.awaitLeader()
			w.writeUntil(w.node(names[(round+1)%3]).Machine().Index()+2*fsm.MarkEvery, away)
			for _, n := range names {
				if n != away {
					_, _ = w.node(n).Snapshot()
				}
			}
			w.start(away)
			w.awaitFormed()
			w.converged()
			time.Sleep(2 * disputeGrace)
			for _, h := range w.hosts {
				if h.fatal() != nil || h.node.Alarm() != "" {
					t.Fatalf("round %d, %s: %v, alarm %q", round, h.peer.Name, h.fatal(), h.node.Alarm())
				}
			}
		}
		if w.node(w.leader()).reign.Load().digests.newest == 0 {
			t.Error("nothing was ever compared")
		}
	})
}
