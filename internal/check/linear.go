package check

import (
	"maps"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/coordd/coord/zxid"
)

// register is one znode as the specification has it. Zxids and the owner are 0
// while they are not known: of a write whose outcome was not told.
type register struct {
	exists       bool
	data         string
	version      int64
	czxid, mzxid zxid.ID
	owner        sessionKey
	last         zxid.ID // of the newest write whose zxid is known
}

// znodes is the sequential specification of one znode: its operations are records,
// and their outputs are in them.
var znodes = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, input, _ any) (bool, any) {
		st, r := state.(register), input.(*Record)
		ok := st.step(r)
		return ok, st
	},
	DescribeOperation: func(input, _ any) string { return input.(*Record).String() },
}

// step does what the record says, and tells whether it can have been so.
func (s *register) step(r *Record) bool {
	switch {
	case r.Kind == Ended:
		if s.exists && s.owner == r.Session {
			*s = register{last: s.last}
		}
		return true
	case r.Kind == Get:
		return s.read(r)
	case r.Kind == Children:
		return s.exists == r.Found
	case r.Outcome == Refused:
		return s.refuses(r)
	case r.Outcome == Unknown:
		if s.allows(r) {
			s.apply(r)
		}
		return true
	default:
		return s.done(r)
	}
}

// allows is whether the write would be done now.
func (s *register) allows(r *Record) bool {
	if r.Kind == Create {
		return !s.exists
	}
	return s.exists && (r.Want < 0 || r.Want == s.version)
}

// done does a write that was acknowledged.
func (s *register) done(r *Record) bool {
	if !s.allows(r) || r.Zxid != 0 && r.Zxid < s.last {
		return false
	}
	if r.Kind == Set && r.Stat.Version != s.version+1 {
		return false
	}
	s.apply(r)
	return true
}

// apply changes the state as the write does.
func (s *register) apply(r *Record) {
	last := max(s.last, r.Zxid)
	switch r.Kind {
	case Create:
		*s = register{exists: true, data: r.Data, czxid: r.Zxid, mzxid: r.Zxid}
		if r.Flags&Ephemeral != 0 {
			s.owner = r.Session
		}
	case Set:
		s.data, s.mzxid = r.Data, r.Zxid
		s.version++
	case Delete:
		*s = register{}
	default: // a check of the version changes nothing
	}
	s.last = last
}

// refuses is whether a write is refused for the reason that was given.
func (s *register) refuses(r *Record) bool {
	switch r.Err {
	case NoNode:
		return !s.exists
	case NodeExists, NotEmpty:
		return s.exists
	case BadVersion:
		return s.exists && s.version != r.Want && (s.version == r.Stat.Version || r.Stat.Version == NotTold)
	default:
		return true
	}
}

// read compares what was read, and learns what was not known.
func (s *register) read(r *Record) bool {
	if r.Zxid != 0 && r.Zxid < s.last || r.Found != s.exists {
		return false
	}
	if !r.Found {
		return true
	}
	same := r.Stat.Version == s.version && (r.NoData || r.Data == s.data) && (s.owner == 0 || r.Stat.Owner == s.owner)
	if !same || !learn(&s.czxid, r.Stat.Czxid) || !learn(&s.mzxid, r.Stat.Mzxid) {
		return false
	}
	s.owner, s.last = r.Stat.Owner, max(s.last, r.Stat.Mzxid)
	return true
}

// learn compares with what is known, or makes it known.
func learn(known *zxid.ID, z zxid.ID) bool {
	if *known == 0 {
		*known = z
	}
	return *known == z
}

// checkLinearizable looks for an order of the operations of each path in which they
// could have happened one after the other. It looks at paths whose znodes were made
// by recorded creates, and do not go by themselves.
func checkLinearizable(v *view) {
	paths := v.operations()
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		ops := paths[path]
		result, info := porcupine.CheckOperationsVerbose(znodes, ops, v.o.Decide)
		if result == porcupine.Ok || result == porcupine.Unknown && v.o.AllowUndecided {
			continue
		}
		text := "no order of the %d operations explains what was seen"
		if result == porcupine.Unknown {
			text = "it was not decided in time whether there is an order of the %d operations"
		}
		v.report(RuleLinearizable, path, culprits(ops, info), text, len(ops))
		if n := len(v.found.list) - 1; n >= 0 && v.found.list[n].Path == path {
			v.found.list[n].drawing = &drawing{info}
		}
	}
}

// drawing is what is needed to draw a search.
type drawing struct{ info porcupine.LinearizationInfo }

// culprits are the operations around which the search got stuck: those that end
// next behind the longest order that was found.
func culprits(ops []porcupine.Operation, info porcupine.LinearizationInfo) []Record {
	var longest []int
	for _, part := range info.PartialLinearizations() {
		for _, order := range part {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	in := map[int]bool{}
	for _, at := range longest {
		in[at] = true
	}
	var records []Record
	for _, at := range longest[max(0, len(longest)-3):] {
		records = append(records, *ops[at].Input.(*Record))
	}
	stuck := -1
	for i := range ops {
		if !in[i] && (stuck < 0 || ops[i].Return < ops[stuck].Return) {
			stuck = i
		}
	}
	if stuck >= 0 {
		records = append(records, *ops[stuck].Input.(*Record))
	}
	return records
}

// operations are those of each path that can be judged.
func (v *view) operations() map[string][]porcupine.Operation {
	made, fleeting := map[string]bool{}, v.fleeting()
	for i := range v.writes {
		w := &v.writes[i]
		if w.Kind == Create && (w.Outcome == Done || w.Outcome == Unknown && w.Flags&Sequential == 0) {
			made[w.target()] = true
		}
	}
	out := map[string][]porcupine.Operation{}
	add := func(path string, r *Record, begin, end int64) {
		if made[path] && !fleeting[path] {
			out[path] = append(out[path], porcupine.Operation{ClientId: len(out[path]), Input: r, Call: begin, Return: end})
		}
	}
	for i := range v.writes {
		if w := &v.writes[i]; v.counts(i) {
			add(w.target(), w, int64(w.Begin), returned(w))
		}
	}
	for i := range v.all {
		v.addReads(&v.all[i], made, add)
	}
	v.addEnds(add)
	return out
}

// counts is whether the write at i says anything about its path. The operation that
// failed in a transaction has seen those before it.
func (v *view) counts(i int) bool {
	w := &v.writes[i]
	if w.Outcome == Failed || w.Outcome == Unknown && (w.Kind == CheckAt || w.Flags&Sequential != 0) {
		return false
	}
	if w.Outcome != Refused {
		return true
	}
	for j := i - 1; j >= 0 && v.writes[j].N == w.N; j-- {
		if v.writes[j].Path == w.Path {
			return false
		}
	}
	return w.Err != RolledBack && w.Err != OtherCause && w.Flags&Sequential == 0
}

func returned(r *Record) int64 {
	if r.Outcome == Unknown {
		return int64(forever)
	}
	return int64(r.End)
}

// addReads adds what a linearizable read says, of a list of children about each.
func (v *view) addReads(r *Record, made map[string]bool, add func(string, *Record, int64, int64)) {
	if r.Mode != Linearizable || r.Outcome != Done {
		return
	}
	switch r.Kind {
	case Get:
		add(r.Path, r, int64(r.Begin), int64(r.End))
	case Children:
		for path := range made {
			if name, ok := childOf(path, r.Path); ok {
				one := *r
				one.Path, one.Names, one.Found = path, nil, slices.Contains(r.Names, name)
				add(path, &one, int64(r.Begin), int64(r.End))
			}
		}
	default:
	}
}

// childOf is the name of a path below its parent.
func childOf(path, parent string) (string, bool) {
	at := strings.LastIndexByte(path, '/')
	if at < 0 || path[:max(at, 1)] != parent || path == "/" {
		return "", false
	}
	return path[at+1:], true
}

// addEnds adds the ends of sessions to the paths of their ephemerals.
func (v *view) addEnds(add func(string, *Record, int64, int64)) {
	type end struct {
		path    string
		session sessionKey
	}
	seen := map[end]bool{}
	for i := range v.writes {
		w := &v.writes[i]
		if w.Kind != Create || w.Flags&Ephemeral == 0 || w.Outcome != Done && w.Outcome != Unknown || seen[end{w.target(), w.Session}] {
			continue
		}
		seen[end{w.target(), w.Session}] = true
		l := v.sessions[w.Session]
		from, to := w.Begin, forever
		if l != nil && l.opened != nil {
			from, to = l.mayEnd, l.deadBy
		}
		if from != forever {
			add(w.target(), &Record{Kind: Ended, Client: w.Client, Session: w.Session, Begin: from, End: to}, int64(from), int64(max(from, to)))
		}
	}
}
