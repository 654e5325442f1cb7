package check

import (
	"cmp"
	"maps"
	"slices"
)

// saying is a value that a leader has told, or may have.
type saying struct {
	record *Record
	token  uint64 // 0: of a candidate that does not know whether it was elected
	index  int    // how many its leadership has told before
}

// done is whether it was certainly told.
func (s *saying) done() bool { return s.record.Outcome == Done }

// behind is whether it was told behind what is at a place in the order of tokens.
func (s *saying) behind(token uint64, index int) bool {
	return s.token > token || s.token == token && s.index > index
}

// campaign is all that is known of one election.
type campaign struct {
	path    string
	sayings []*saying // with a token, in their order
	byValue map[string]*saying
	reads   []*Record // of who leads
}

// observer is one that is told of every change of an election.
type observer struct {
	begun   *Record
	seen    []*Record
	over    bool
	settled bool // it went on when everything had had the time to reach it
}

// checkElections holds what observers were told to what leaders have said. That one
// leads at a time, with a token above all before, is a matter of locks.
func checkElections(v *view) {
	elections, observers := v.elections()
	for _, path := range slices.Sorted(maps.Keys(elections)) {
		elections[path].checkReads(v)
	}
	for _, o := range observers {
		if e := elections[o.begun.Path]; e != nil {
			o.check(v, e)
		}
	}
}

// elections gathers what there is, by path, and the observers.
func (v *view) elections() (map[string]*campaign, []*observer) {
	elections, byNumber := map[string]*campaign{}, map[int]*observer{}
	at := func(path string) *campaign {
		if elections[path] == nil {
			elections[path] = &campaign{path: path, byValue: map[string]*saying{}}
		}
		return elections[path]
	}
	var observers []*observer
	for i := range v.all {
		r := &v.all[i]
		switch {
		case r.Kind == Acquire && r.Data != "", r.Kind == Proclaim:
			at(r.Path).say(r)
		case r.Kind == Observing:
			byNumber[r.N] = &observer{begun: r}
			observers = append(observers, byNumber[r.N])
		case r.Kind == Observed || r.Kind == LeaderRead:
			at(r.Path).reads = append(at(r.Path).reads, r)
		case r.Kind == Settled:
			for _, o := range observers {
				o.settled = !o.over
			}
		}
		if o := byNumber[r.Watch]; o != nil && r.Kind == Observed {
			o.seen = append(o.seen, r)
		} else if o != nil && r.Kind == Unwatch {
			o.over = true
		}
	}
	for _, e := range elections {
		e.number()
	}
	return elections, observers
}

func (e *campaign) say(r *Record) {
	s := &saying{record: r, token: r.Token}
	e.byValue[r.Data] = s
	if s.token != 0 {
		e.sayings = append(e.sayings, s)
	}
}

// number puts the sayings into their order: a leader tells one after the other.
func (e *campaign) number() {
	slices.SortStableFunc(e.sayings, func(a, b *saying) int {
		return cmp.Or(cmp.Compare(a.token, b.token), cmp.Compare(a.record.Begin, b.record.Begin), cmp.Compare(a.record.N, b.record.N))
	})
	for i := 1; i < len(e.sayings); i++ {
		if e.sayings[i].token == e.sayings[i-1].token {
			e.sayings[i].index = e.sayings[i-1].index + 1
		}
	}
}

// check goes through what one observer was told.
func (o *observer) check(v *view, e *campaign) {
	var last, leader *Record // what was told before, and the last of it that names a leader
	var gap *Record          // that the observer was told of behind leader: of what was said before it some is forgotten
	index := 0               // of what the leader has said
	for _, r := range o.seen {
		if last != nil && r.Zxid <= last.Zxid {
			v.report(RuleElection, e.path, []Record{*last, *r}, "the observer is told of %s behind %s", r.Zxid, last.Zxid)
		}
		last = r
		if r.Missed {
			gap = r
		}
		if !r.Found || r.Token == 0 && r.Data == "" { // none leads, or one of whom no more is known
			continue
		}
		s := e.byValue[r.Data]
		switch {
		case s == nil:
			v.report(RuleElection, e.path, []Record{*r}, "the observer is told what no leader has said")
			continue
		case s.token != 0 && s.token != r.Token:
			v.report(RuleElection, e.path, []Record{*s.record, *r}, "the observer is told of token %d what was said with token %d", r.Token, s.token)
			continue
		case leader != nil && (r.Token < leader.Token || r.Token == leader.Token && s.index < index):
			v.report(RuleElection, e.path, []Record{*leader, *r}, "the observer is told what token %d has said behind what token %d has", r.Token, leader.Token)
		case leader != nil && gap == nil:
			o.checkMissed(v, e, leader, index, func(m *saying) bool { return m.token < r.Token || m.token == r.Token && m.index < s.index })
		}
		leader, index, gap = r, s.index, nil
	}
	switch {
	case !o.settled:
	case last == nil:
		v.report(RuleElection, e.path, []Record{*o.begun}, "the observer was told nothing")
	default:
		if leader == nil {
			leader = &Record{N: last.N}
		}
		since := cmp.Or(gap, o.begun).End
		o.checkMissed(v, e, leader, index, func(m *saying) bool { return m.record.Begin > since })
	}
}

// checkMissed looks for what was said behind what the observer was told at last, and
// that it should have been told.
func (o *observer) checkMissed(v *view, e *campaign, leader *Record, index int, due func(*saying) bool) {
	for _, m := range e.sayings {
		if m.done() && m.behind(leader.Token, index) && due(m) {
			v.report(RuleElection, e.path, []Record{*o.begun, *leader, *m.record}, "the observer %s is not told what token %d has said", o.begun.Client, m.token)
			return
		}
	}
}

// checkReads holds each answer to the question who leads to what was known before it
// was asked.
func (e *campaign) checkReads(v *view) {
	type known struct {
		record *Record
		token  uint64
	}
	var facts []known // by the time at which they were known
	for _, s := range e.sayings {
		if s.done() && s.record.Kind == Acquire {
			facts = append(facts, known{s.record, s.token})
		}
	}
	for _, r := range e.reads {
		facts = append(facts, known{r, r.Token})
	}
	slices.SortStableFunc(facts, func(a, b known) int { return cmp.Compare(a.record.End, b.record.End) })
	reads := slices.DeleteFunc(slices.Clone(e.reads), func(r *Record) bool { return r.Kind != LeaderRead || !r.Found || r.Token == 0 })
	slices.SortStableFunc(reads, func(a, b *Record) int { return cmp.Compare(a.Begin, b.Begin) })
	var newest known
	for _, r := range reads {
		for len(facts) > 0 && facts[0].record.End < r.Begin {
			if facts[0].token > newest.token {
				newest = facts[0]
			}
			facts = facts[1:]
		}
		if r.Token < newest.token {
			v.report(RuleElection, e.path, []Record{*newest.record, *r}, "token %d is said to lead, and token %d was known to before", r.Token, newest.token)
		}
	}
}
