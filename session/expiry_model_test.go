package session

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/internal/seed"
)

// The promise: no expiry takes effect before the client's own deadline, which
// is the time its last answered heartbeat was sent, plus the timeout. This file
// explores interleavings, in whole ticks, of one client, two servers F and G,
// and several leaders one after another: heartbeats that are sent or not,
// reports that are late or lost, expiries and marks of suspicion in flight while
// reports come in, marks that are taken back while the next one is made, silence
// that one leader takes over from another, leaders lost with what they had in
// flight, and a client that moves from F to G. What the leader knows and decides
// is Expiry; what its caller has to do is in the rules below, and each of them is
// broken once to see that the model would notice.
//
// Small worlds are explored completely, as far as there is time. In these a
// timeout has 4 ticks, so that marks are made at every tick. Larger ones, with
// the marks where they are, are walked through at random.

// scale is the size of a model.
type scale struct {
	timeout int8 // ticks
	end     int8 // ticks
	leaders int8
	delay   int8 // ticks after which a report is lost
	stays   bool // the client stays at F
	aloft   int  // reports under way at a time, at most; 0: they are read at once
}

var (
	// moving is about reports that overtake each other and a client that moves,
	// staying about marks and leaders.
	moving  = scale{timeout: 4, end: 11, leaders: 3, delay: 1, aloft: 2}
	staying = scale{timeout: 4, end: 9, leaders: 3, stays: true}
	large   = scale{timeout: 40, end: 125, leaders: 20, delay: 4, aloft: 2}
)

// rules are what the caller of Expiry does; without a broken one they are right.
type rules struct {
	scale
	answerLocally    bool // a server answers heartbeats by itself
	answerProposed   bool // a report is acked although Report said Dropped
	answerSuspect    bool // a report is acked although Report said CountedSuspect
	markLate         bool // Suspect only when the mark is applied
	markStale        bool // a mark tells of the silence of an earlier look
	believeAnyServer bool // the session's former server counts as its owner
	wholeTimeout     bool // a suspect was silent for its whole timeout, says the new leader
	overlook         bool // a mark that was proposed behind its removal is overlooked
	keepMark         bool // the new leader counts from a mark that was taken back
	forgetMark       bool // the new leader does not know that a session is marked
	addMarks         bool // the silence of two marks is added up in the table
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
	looked int8 // silence of an earlier look; with markStale only
	log    [3]entry
	mark   int8 // Suspected in the table
}

// flying is a report on its way.
type flying struct {
	there       bool
	fromG       bool
	sent, heard int8
}

// entry is a mark (silent > 0) or its removal for a sign of life, proposed and
// not applied. The zero entry is none.
type entry struct {
	silent int8
	undo   flying
}

// known is the state of an Expiry with one session.
type known struct {
	heard, marked                  int8
	provisional, proposed, suspect bool
}

func (r rules) expiry(k known) *Expiry {
	e := NewExpiry()
	e.add(&liveness{
		id: 1, timeout: time.Duration(r.timeout), heard: time.Duration(k.heard), marked: time.Duration(k.marked),
		provisional: k.provisional, proposed: k.proposed, suspect: k.suspect,
	})
	return e
}

func knownOf(e *Expiry) known {
	l := e.sessions[1]
	return known{int8(l.heard), int8(l.marked), l.provisional, l.proposed, l.suspect}
}

// push appends to the log; false if it is full.
func (m *moment) push(x entry) bool {
	for i := range m.log {
		if m.log[i] == (entry{}) {
			m.log[i] = x
			return true
		}
	}
	return false
}

func (m *moment) last() (x entry) {
	for i := range m.log {
		if m.log[i] != (entry{}) {
			x = m.log[i]
		}
	}
	return x
}

// marksWaiting says whether a mark is proposed and not applied.
func (m *moment) marksWaiting() bool {
	for _, x := range m.log {
		if x.silent > 0 {
			return true
		}
	}
	return false
}

// The kinds of events.
const (
	passes = iota
	hears
	reports
	decides
	applies
	elects
	attaches
	expires
	kinds
)

type event struct {
	kind  int
	label string
	to    moment
	bad   bool
}

func (r rules) next(m moment) []event {
	var out []event
	if m.t < r.end {
		n := m
		n.t++
		for i, f := range n.report {
			if f.there && n.t-f.sent > r.delay {
				n.report[i] = flying{}
			}
		}
		out = append(out, event{kind: passes, label: "time passes", to: n})
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
		out = append(out, event{kind: hears, label: "the server hears the client", to: n})
	}
	out = append(out, r.reports(m)...)
	out = append(out, r.decisions(m)...)
	out = append(out, r.commits(m)...)
	if m.leader < r.leaders {
		out = append(out, event{kind: elects, label: "another leader; what was in flight is lost", to: r.elect(m)})
	}
	if !m.atG && !r.stays {
		out = append(out, event{kind: attaches, label: "the client attaches at G", to: r.attach(m)})
	}
	return out
}

// reports sends, loses and delivers reports.
func (r rules) reports(m moment) []event {
	var out []event
	add := func(label string, to moment) { out = append(out, event{kind: reports, label: label, to: to}) }
	if r.aloft == 0 {
		add("a report is read", r.count(m, flying{true, false, m.t, m.heard[0]}))
		return out
	}
	for from := range 2 {
		fromG := from == 1
		for i, f := range m.report {
			if i == r.aloft || f.there || m.heard[from] < 0 || i == 1 && !m.report[0].there {
				continue
			}
			n := m
			n.report[i] = flying{true, fromG, m.t, m.heard[from]}
			if n.report[0] != n.report[1] {
				add("a server reports", n)
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
		add("a report is lost", n)
		add("a report is read", r.count(n, f))
	}
	return out
}

// count is what the leader does with a report, the term round passing at once.
func (r rules) count(m moment, f flying) moment {
	owner := f.fromG == m.atG
	if !owner && !r.believeAnyServer {
		return m // of another generation
	}
	e := r.expiry(m.book)
	got := e.Report(1, time.Duration(m.t-f.heard), time.Duration(m.t), owner || r.believeAnyServer)
	m.book = knownOf(e)
	answer := got == Counted || got == Dropped && r.answerProposed || got == CountedSuspect && r.answerSuspect
	switch {
	case answer && owner:
		m.ans = max(m.ans, f.heard)
	case got == CountedSuspect:
		f.sent = 0 // of no interest any more
		if x := (entry{undo: f}); m.last() != x {
			m.push(x)
		}
	}
	return m
}

// decisions are what the leader proposes.
func (r rules) decisions(m moment) []event {
	var out []event
	add := func(label string, to moment) { out = append(out, event{kind: decides, label: label, to: to}) }
	now := time.Duration(m.t)
	e := r.expiry(m.book)
	if len(e.Due(now)) > 0 {
		n := m
		e.Proposed(1)
		n.book, n.expiry = knownOf(e), true
		add("expiry is proposed", n)
		e = r.expiry(m.book)
	}
	silent, _ := e.SilentFor(1, now)
	due := len(e.Suspects(now)) > 0 && int8(silent) > m.book.marked
	if r.markStale {
		if due && m.looked == 0 {
			n := m
			n.looked = int8(silent)
			add("the leader looks", n)
		}
		silent, due = time.Duration(m.looked), m.looked > 0
	}
	n := m
	n.looked = 0
	if due && n.push(entry{silent: int8(silent)}) {
		if !r.markLate {
			e.Suspect(1, silent)
		}
		n.book = knownOf(e)
		add("a mark is proposed", n)
	}
	return out
}

// commits are what is applied of the log, and the expiry.
func (r rules) commits(m moment) []event {
	var out []event
	if x := m.log[0]; x != (entry{}) {
		n := m
		n.log = [3]entry{m.log[1], m.log[2]}
		if x.silent > 0 {
			out = append(out, event{kind: applies, label: "a mark is applied", to: r.marked(n, x)})
		} else {
			out = append(out, event{kind: applies, label: "a mark is taken back", to: r.takeBack(n, x)})
		}
	}
	if m.expiry {
		out = append(out, event{kind: expires, label: "EXPIRED", to: m, bad: m.t < m.ans+r.timeout})
	}
	return out
}

func (r rules) marked(m moment, x entry) moment {
	if r.markLate {
		e := r.expiry(m.book)
		e.Suspect(1, time.Duration(x.silent))
		m.book = knownOf(e)
	}
	if r.addMarks {
		x.silent += m.mark
	}
	m.mark = max(m.mark, min(x.silent, r.timeout))
	return m
}

// takeBack answers the sign of life, also if an expiry is proposed by now: it
// counted from this sign.
func (r rules) takeBack(m moment, x entry) moment {
	if !r.keepMark {
		m.mark = 0
	}
	if m.marksWaiting() && !r.overlook {
		return m // it is reported again
	}
	e := r.expiry(m.book)
	e.Trust(1)
	m.book = knownOf(e)
	if x.undo.fromG == m.atG {
		m.ans = max(m.ans, x.undo.heard)
	}
	return m
}

func (r rules) elect(m moment) moment {
	e := NewExpiry()
	e.Reset(time.Duration(m.t), seqOf(&Session{ID: 1, Timeout: time.Duration(r.timeout), Suspected: time.Duration(m.mark)}))
	if r.forgetMark {
		e.sessions[1].suspect = false
	}
	m.book = knownOf(e)
	if m.mark > 0 && r.wholeTimeout {
		m.book.heard = m.t - r.timeout
	}
	m.leader++
	m.report = [2]flying{}
	m.expiry, m.looked, m.log = false, 0, [3]entry{}
	return m
}

// attach goes through the log: it finds the session open, touches it, so that
// what is proposed about it is refused, and takes a suspicion back.
func (r rules) attach(m moment) moment {
	e := r.expiry(m.book)
	e.Heard(1, time.Duration(m.t))
	e.Unpropose(1)
	e.Trust(1)
	m.book = knownOf(e)
	m.atG, m.ans = true, m.t
	m.heard[1] = m.t
	m.expiry, m.looked, m.log, m.mark = false, 0, [3]entry{}, 0
	return m
}

func start() moment { return moment{heard: [2]int8{0, -1}, leader: 1} }

// explore visits every state and returns how many there are, how many expiries
// took effect, and the way to the first early one.
func (r rules) explore(limit int) (states, expiries int, early []string) {
	type step struct {
		from  int32
		label string
	}
	seen := map[moment]struct{}{start(): {}}
	steps := []step{{-1, "start"}}
	queue := []moment{start()}
	for i := 0; i < len(queue); i++ {
		for _, ev := range r.next(queue[i]) {
			if ev.kind == expires {
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
			seen[ev.to] = struct{}{}
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
	limit := 200_000 // all 3,720,650 of staying were explored once and 8,000,000 of moving
	if testing.Short() {
		limit = 60_000
	}
	for _, s := range []scale{moving, staying} {
		states, expiries, early := rules{scale: s}.explore(limit)
		if early != nil {
			t.Fatalf("expired early:\n  %s", strings.Join(early, "\n  "))
		}
		if expiries == 0 {
			t.Fatal("nothing ever expired: the model does not explore")
		}
		t.Logf("%d states, %d expiries, none early", states, expiries)
	}
}

// Each rule is there for a reason: without it the model finds an early expiry.
func TestEachLivenessRuleIsNeeded(t *testing.T) {
	for name, r := range map[string]rules{
		"a server answers by itself":            {scale: staying, answerLocally: true},
		"acked while the expiry is proposed":    {scale: staying, answerProposed: true},
		"acked while suspect":                   {scale: staying, answerSuspect: true},
		"suspected only when applied":           {scale: staying, markLate: true},
		"a mark of older silence":               {scale: staying, markStale: true},
		"the former server is believed":         {scale: moving, believeAnyServer: true},
		"a suspect has only what is left of 0":  {scale: staying, wholeTimeout: true},
		"a mark behind its removal":             {scale: staying, overlook: true},
		"a mark that was taken back":            {scale: staying, keepMark: true},
		"a mark of the leader before":           {scale: staying, forgetMark: true},
		"silence that two marks both contained": {scale: staying, addMarks: true},
	} {
		states, _, early := r.explore(1_000_000)
		if early == nil {
			t.Errorf("%s: nothing found in %d states", name, states)
			continue
		}
		t.Logf("%s: %d steps after %d states", name, len(early), states)
	}
}

// walk goes one way at random, with the rates of a temper of its own, until the
// session is expired or time is over.
func (r rules) walk(rng *rand.Rand) (w walked) {
	var rate [kinds]float64
	for i := range rate {
		rate[i] = math.Exp(4 * (rng.Float64() - 0.5))
	}
	rate[passes] *= 3
	rate[expires] *= 10
	rate[elects] /= 10
	rate[attaches] /= 100
	rate[hears] /= math.Exp(3 * rng.Float64())
	for m := start(); m.t < r.end; {
		ev := pick(rng, r.next(m), rate)
		switch ev.kind {
		case expires:
			w.expired, w.early = true, ev.bad
			w.handedOver = m.t-w.since < r.timeout/2
			w.last = m
			return w
		case elects:
			w.since = m.t
		}
		m = ev.to
	}
	return w
}

// walked is how a walk ended.
type walked struct {
	expired, early bool
	handedOver     bool // the last leader knew half of the silence from others
	since          int8 // when it began
	last           moment
}

func pick(rng *rand.Rand, events []event, rate [kinds]float64) event {
	sum := 0.0
	for _, ev := range events {
		sum += rate[ev.kind]
	}
	at := rng.Float64() * sum
	for _, ev := range events {
		if at -= rate[ev.kind]; at <= 0 {
			return ev
		}
	}
	return events[len(events)-1] // by a rounding error
}

// The same where marks are made at 2/5 of the timeout and then by eighths.
func TestNoExpiryBeforeTheClientsDeadlineOnLongWalks(t *testing.T) {
	walks := 4_000 // 1,000,000 were made once
	if testing.Short() {
		walks = 1_000
	}
	rng := seed.Rand(t)
	expiries, handedOver := 0, 0
	for range walks {
		w := rules{scale: large}.walk(rng)
		if w.early {
			t.Fatalf("expired early: %+v", w.last)
		}
		if w.expired {
			expiries++
		}
		if w.handedOver {
			handedOver++
		}
	}
	t.Logf("%d expiries, %d of them with silence that was handed over, none early", expiries, handedOver)
	if handedOver < walks/1000 {
		t.Errorf("only %d of %d walks hand silence over: they explore too little", handedOver, walks)
	}
}
