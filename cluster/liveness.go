package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coordd/coord/cluster/peerpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/internal/planted"
	"github.com/coordd/coord/session"
)

// livenessTick is how often the leader looks for silent sessions with the default
// times.
const livenessTick = 25 * time.Millisecond

// liveness is what the leader of one term knows about who is alive. Only the
// leader decides that a session has expired, and only through the log.
//
// A sign of life counts when it is here, and a heartbeat is answered only after
// it has counted and a round that began later has shown that this server still
// leads: then whoever expires the session later counts from it or from a later
// moment.
type liveness struct {
	node  *Node
	reign *reign

	mu     sync.Mutex // guards what follows; taken under the machine's lock, never around it
	expiry *session.Expiry
	// marked counts the suspicions proposed of a session, so that one that was
	// proposed while an older one was taken back is not overlooked.
	marked map[session.ID]int
	clock  session.ExpiryClock
	at     time.Duration // on the node's clock, when clock was last advanced
}

// newLiveness begins with the sessions of the table. From inside of the same
// view the node hands it every applied command, so none is missed.
func newLiveness(n *Node, r *reign) *liveness {
	l := &liveness{node: n, reign: r, expiry: session.NewExpiry(), marked: make(map[session.ID]int), at: n.now()}
	n.machine.View(func(v *fsm.View) {
		l.expiry.Reset(l.clock.Now(), v.Sessions.All())
		planted.Run(planted.OldLeadersClock, l, v)
		n.live.Store(l)
	})
	return l
}

// nowLocked advances the clock of silence and returns it.
func (l *liveness) nowLocked() time.Duration {
	now := l.node.now()
	elapsed := now - l.at
	l.at = now
	return l.clock.Advance(elapsed, l.tick())
}

// applied counts a command that was applied here as a sign of life.
func (l *liveness) applied(r *fsm.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case r.Session != nil && r.Status == fsm.StatusDone:
		l.expiry.Track(r.Session.ID, r.Session.Timeout, l.nowLocked())
		l.expiry.Trust(r.Session.ID)
	case r.Session != nil:
		// A late copy tells of then: the session may have ended since, or have
		// another timeout, and a mark of suspicion may still be in the table.
		l.expiry.Heard(r.Session.ID, l.nowLocked())
	case r.Line.Session != 0 && r.Status != fsm.StatusGone && r.Status != fsm.StatusAgain:
		l.expiry.Heard(r.Line.Session, l.nowLocked())
	}
}

func (l *liveness) ended(id session.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expiry.Forget(id)
	delete(l.marked, id)
}

// silentFor returns how long a session has not been heard.
func (l *liveness) silentFor(id session.ID) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expiry.SilentFor(id, l.nowLocked())
}

// run proposes the expiry and the suspicion of silent sessions until ctx ends.
func (l *liveness) run(ctx context.Context) {
	defer l.node.live.CompareAndSwap(l, nil)
	every(ctx, l.tick(), l.look)
}

// tick is how often the leader looks for silent sessions.
func (l *liveness) tick() time.Duration { return l.node.cfg.slowly(livenessTick) }

func (l *liveness) look() {
	l.mu.Lock()
	now := l.nowLocked()
	due, silent := l.expiry.Due(now), l.expiry.Suspects(now)
	l.mu.Unlock()
	if len(due)+len(silent) == 0 {
		return
	}
	// A command applied after this look at the table makes the proposal void;
	// one applied before it has been counted by now. So: table first, then the
	// silence again.
	seen := l.lookUp(append(due, silent...))
	for _, id := range due {
		if s, ok := seen[id]; ok {
			l.ifStillSilent(id, s.timeout+s.timeout/100, func(time.Duration) {
				l.expiry.Proposed(id)
				l.proposeLocked(fsm.CmdExpire, s.named(l.reign.term), func() { l.expiry.Unpropose(id) })
			})
		}
	}
	for _, id := range silent {
		if s, ok := seen[id]; ok {
			l.ifStillSilent(id, session.FirstMark(s.timeout), func(silent time.Duration) {
				l.expiry.Suspect(id, silent)
				l.marked[id]++
				mark := s.named(l.reign.term)
				mark.Silent = silent
				l.proposeLocked(fsm.CmdSuspect, mark, func() {})
			})
		}
	}
}

// sighting is a session as an Expire names it.
type sighting struct {
	id         session.ID
	generation uint64
	touched    uint64
	timeout    time.Duration
	suspect    bool
}

// named is the session as a command of the leader of term names it.
func (s sighting) named(term uint64) *fsm.Expire {
	return &fsm.Expire{Session: s.id, Generation: s.generation, Touched: s.touched, Term: term}
}

func (l *liveness) lookUp(ids []session.ID) map[session.ID]sighting {
	seen := make(map[session.ID]sighting, len(ids))
	l.node.machine.View(func(v *fsm.View) {
		for _, id := range ids {
			if s := v.Sessions.Get(id); s != nil {
				seen[id] = sighting{id, s.Generation, s.Touched, s.Timeout, s.Suspected != 0}
			}
		}
	})
	return seen
}

// ifStillSilent calls f under the lock if the session has been silent for at
// least so long, with the silence. f marks the session and proposes in one step:
// a report that finds the mark proposes to take the suspicion back, and that must
// stand behind the suspicion in the log; and one that does not find it has been
// counted, so that the silence does not reach back behind it.
func (l *liveness) ifStillSilent(id session.ID, least time.Duration, f func(silent time.Duration)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if silent, ok := l.expiry.SilentFor(id, l.nowLocked()); ok && silent >= least {
		f(silent)
	}
}

// proposeLocked sends a command about a session on its way. Once the entry was applied,
// undo runs under the lock if the session lives on. If the outcome is unknown,
// this leadership is over, and nothing of what it knows is used any more.
func (l *liveness) proposeLocked(kind fsm.Kind, e *fsm.Expire, undo func()) {
	l.reign.batch.propose(&fsm.Command{Kind: kind, Expire: e}, func(err error) {
		if err == nil {
			l.mu.Lock()
			undo()
			l.mu.Unlock()
		}
	})
}

// errOtherTerm is returned for a report that was made for another leadership.
var errOtherTerm = errors.New("this server does not lead that term")

// report counts what a server has heard. When it returns without error, every
// session that is not in dropped may be told that it was heard. commit is a
// commit index of the leader during the call.
func (l *liveness) report(ctx context.Context, from serverID, req *peerpb.ReportRequest) (dropped []uint64, commit uint64, err error) {
	if req.GetTerm() != l.reign.term {
		return nil, 0, errOtherTerm
	}
	dropped, suspects := l.count(from, req)
	if len(suspects) > 0 {
		still, err := l.unsuspect(ctx, suspects)
		if err != nil {
			return nil, 0, err
		}
		for _, id := range still {
			dropped = append(dropped, uint64(id))
		}
	}
	p, err := l.node.rounds.joinWithin(ctx, l.node.cfg.reportInterval()/2)
	if err != nil {
		return nil, 0, err
	}
	if p.term != l.reign.term {
		return nil, 0, errOtherTerm
	}
	return dropped, p.commit, nil
}

// count takes the signs of life down. It returns the sessions that were not
// counted, and those that may be answered only when they are no longer suspect.
func (l *liveness) count(from serverID, req *peerpb.ReportRequest) (dropped []uint64, suspects []session.ID) {
	l.node.machine.View(func(v *fsm.View) {
		l.mu.Lock()
		defer l.mu.Unlock()
		now := l.nowLocked()
		for _, h := range req.GetHeard() {
			id := session.ID(h.GetSession())
			s := v.Sessions.Get(id)
			if s == nil || s.Generation != h.GetGeneration() {
				dropped = append(dropped, h.GetSession())
				continue
			}
			owner := s.Server == string(from) && s.Boot == req.GetBoot()
			age := time.Duration(h.GetAgeUs()) * time.Microsecond
			switch l.expiry.Report(id, age, now, owner) {
			case session.Dropped:
				dropped = append(dropped, h.GetSession())
			case session.CountedSuspect:
				suspects = append(suspects, id)
			case session.Counted:
			}
		}
	})
	return dropped, suspects
}
