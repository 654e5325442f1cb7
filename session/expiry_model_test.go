package session

import (
	"strings"
	"testing"
	"time"
)

// The promise: no expiry takes effect before the client's own deadline, which
// is the time its last answered heartbeat was sent, plus the timeout. This file
// explores every interleaving within bounds, in whole ticks, of one client, two
// servers F and G, and up to three leaders one after another: heartbeats that
// are sent or not, reports that are late or lost, expiries and suspicions in
// flight while reports come in, leaders lost with what they had in flight, and
// a client that moves from F to G. What the leader knows and decides is Expiry;
// what its caller has to do is in the rules below, and each of them is broken
// once to see that the model would notice.

const (
	modelTimeout = 4 // ticks
	modelEnd     = 11
	modelLeaders = 3
	reportDelay  = 1 // ticks after which a report is lost
)

// rules are what the caller of Expiry does; the zero value is right.
type rules struct {
	answerLocally     bool // a server answers heartbeats by itself
	answerProposed    bool // a report is acked although Report said Dropped
	answerSuspect     bool // a report is acked although Report said CountedSuspect
	markLate          bool // SetSuspect only when the suspicion is applied
	believeAnyServer  bool // the session's former server counts as its owner
	suspectFromCommit bool // a suspect was silent for its whole timeout, says the new leader
}

// moment is a state of the model.
type moment struct {
	t      int8
	leader int8 // number of the present one; with it goes all that was sent to it
	atG    bool
	ans    int8 // sending time of the last heartbeat that was answered
	heard  [2]int8
	report [2]flying
	book   known
	expiry bool // proposed
	doubt  bool // suspicion proposed
	mark   bool // suspicion applied: SuspectSince != 0
	undo   flying
}

// flying is a report on its way, or what waits for the removal of a suspicion.
type flying struct {
	there       bool
	fromG       bool
	sent, heard int8
}

// known is the state of an Expiry with one session.
type known struct {
	heard                          int8
	provisional, proposed, suspect bool
}

func (k known) expiry() *Expiry {
	e := NewExpiry()
	e.add(&liveness{
		id: 1, timeout: modelTimeout, heard: time.Duration(k.heard),
		provisional: k.provisional, proposed: k.proposed, suspect: k.suspect,
	})
	l := e.sessions[1]
	if l.proposed {
		e.agendas[byDue].move(l, never)
	}
	return e
}

func knownOf(e *Expiry) known {
	l := e.sessions[1]
	return known{int8(l.heard), l.provisional, l.proposed, l.suspect}
}

type event struct {
	label string
	to    moment
	bad   bool
}

func (r rules) next(m moment) []event {
	var out []event
	add := func(label string, to moment) { out = append(out, event{label: label, to: to}) }
	if m.t < modelEnd {
		n := m
		n.t++
		for i, f := range n.report {
			if f.there && n.t-f.sent > reportDelay {
				n.report[i] = flying{}
			}
		}
		add("time passes", n)
	}
	at := 0
	if m.atG {
		at = 1
	}
	if m.heard[at] < m.t {
		n := m
		n.heard[at] = m.t
		if r.answerLocally {
			n.ans = m.t
		}
		add("the server hears the client", n)
	}
	out = append(out, r.reports(m)...)
	out = append(out, r.decisions(m)...)
	if m.leader < modelLeaders {
		add("another leader; what was in flight is lost", r.elect(m))
	}
	if !m.atG {
		add("the client attaches at G", r.attach(m))
	}
	return out
}

// reports sends, loses and delivers reports.
func (r rules) reports(m moment) []event {
	var out []event
	for from := range 2 {
		fromG := from == 1
		for i, f := range m.report {
			if f.there || m.heard[from] < 0 || i == 1 && !m.report[0].there {
				continue
			}
			n := m
			n.report[i] = flying{true, fromG, m.t, m.heard[from]}
			if n.report[0] != n.report[1] {
				out = append(out, event{label: "a server reports", to: n})
			}
		}
	}
	for i, f := range m.report {
		if !f.there {
			continue
		}
		n := m
		n.report[i] = flying{}
		if i == 0 {
			n.report[0], n.report[1] = n.report[1], flying{}
		}
		out = append(out, event{label: "a report is lost", to: n}, event{label: "a report is read", to: r.count(n, f)})
	}
	return out
}

// count is what the leader does with a report, the term round passing at once.
func (r rules) count(m moment, f flying) moment {
	owner := f.fromG == m.atG
	if !owner && !r.believeAnyServer {
		return m // of another generation
	}
	e := m.book.expiry()
	got := e.Report(1, time.Duration(m.t-f.heard), time.Duration(m.t), owner || r.believeAnyServer)
	m.book = knownOf(e)
	answer := got == Counted || got == Dropped && r.answerProposed || got == CountedSuspect && r.answerSuspect
	switch {
	case answer && owner:
		m.ans = max(m.ans, f.heard)
	case got == CountedSuspect && !m.undo.there:
		m.undo = f
	}
	return m
}

// decisions are the leader's proposals and their commits.
func (r rules) decisions(m moment) []event {
	var out []event
	e := m.book.expiry()
	if len(e.Due(time.Duration(m.t))) > 0 {
		n := m
		e.Proposed(1)
		n.book, n.expiry = knownOf(e), true
		out = append(out, event{label: "expiry is proposed", to: n})
	}
	e = m.book.expiry()
	if !m.doubt && !m.mark && len(e.Suspects(time.Duration(m.t))) > 0 {
		n := m
		if !r.markLate {
			e.SetSuspect(1, true)
		}
		n.book, n.doubt = knownOf(e), true
		out = append(out, event{label: "suspicion is proposed", to: n})
	}
	if m.doubt {
		n := m
		e := m.book.expiry()
		e.SetSuspect(1, true)
		n.book, n.doubt, n.mark = knownOf(e), false, true
		out = append(out, event{label: "suspicion is applied", to: n})
	}
	if m.undo.there && !m.doubt {
		out = append(out, event{label: "suspicion is taken back", to: takeBack(m)})
	}
	if m.expiry {
		out = append(out, event{label: "EXPIRED", to: m, bad: m.t < m.ans+modelTimeout})
	}
	return out
}

func takeBack(m moment) moment {
	e := m.book.expiry()
	e.SetSuspect(1, false)
	m.book = knownOf(e)
	if m.undo.fromG == m.atG { // also if an expiry is proposed by now: it counted from this sign
		m.ans = max(m.ans, m.undo.heard)
	}
	m.mark, m.undo = false, flying{}
	return m
}

func (r rules) elect(m moment) moment {
	s := &Session{ID: 1, Timeout: modelTimeout}
	if m.mark {
		s.SuspectSince = 1
	}
	e := NewExpiry()
	e.Reset(time.Duration(m.t), seqOf(s))
	m.book = knownOf(e)
	if m.mark && r.suspectFromCommit {
		m.book.heard = m.t - modelTimeout
	}
	m.leader++
	m.report = [2]flying{}
	m.expiry, m.doubt, m.undo = false, false, flying{}
	return m
}

// attach goes through the log: it finds the session open, touches it, so that
// what is proposed about it is refused, and takes a suspicion back.
func (r rules) attach(m moment) moment {
	e := m.book.expiry()
	e.Heard(1, time.Duration(m.t))
	e.Unpropose(1)
	e.SetSuspect(1, false)
	m.book = knownOf(e)
	m.atG, m.ans = true, m.t
	m.heard[1] = m.t
	m.expiry, m.doubt, m.mark, m.undo = false, false, false, flying{}
	return m
}

// explore visits every state and returns how many there are, how many expiries
// took effect, and the way to the first early one.
func (r rules) explore(limit int) (states, expiries int, early []string) {
	type step struct {
		from  int32
		label string
	}
	start := moment{heard: [2]int8{0, -1}, leader: 1}
	seen := map[moment]int32{start: 0}
	steps := []step{{-1, "start"}}
	queue := []moment{start}
	for i := 0; i < len(queue); i++ {
		for _, ev := range r.next(queue[i]) {
			if ev.label == "EXPIRED" {
				expiries++
				if ev.bad {
					for at := int32(i); at >= 0; at = steps[at].from {
						early = append([]string{steps[at].label}, early...)
					}
					return len(queue), expiries, append(early, ev.label)
				}
				continue
			}
			if _, ok := seen[ev.to]; ok {
				continue
			}
			seen[ev.to] = int32(len(queue))
			queue = append(queue, ev.to)
			steps = append(steps, step{int32(i), ev.label})
			if len(queue) > limit {
				return len(queue), expiries, nil
			}
		}
	}
	return len(queue), expiries, nil
}

func TestNoExpiryBeforeTheClientsDeadline(t *testing.T) {
	limit := 250_000 // 8,000,000 were explored once, with nothing found
	if testing.Short() {
		limit = 100_000
	}
	states, expiries, early := rules{}.explore(limit)
	if early != nil {
		t.Fatalf("expired early:\n  %s", strings.Join(early, "\n  "))
	}
	if expiries == 0 {
		t.Fatal("nothing ever expired: the model does not explore")
	}
	t.Logf("%d states, %d expiries, none early", states, expiries)
}

// Each rule is there for a reason: without it the model finds an early expiry.
func TestEachLivenessRuleIsNeeded(t *testing.T) {
	for name, r := range map[string]rules{
		"a server answers by itself":           {answerLocally: true},
		"acked while the expiry is proposed":   {answerProposed: true},
		"acked while suspect":                  {answerSuspect: true},
		"suspected only when applied":          {markLate: true},
		"the former server is believed":        {believeAnyServer: true},
		"a suspect has only what is left of 0": {suspectFromCommit: true},
	} {
		states, _, early := r.explore(3_000_000)
		if early == nil {
			t.Errorf("%s: nothing found in %d states", name, states)
			continue
		}
		t.Logf("%s: %d steps after %d states", name, len(early), states)
	}
}
