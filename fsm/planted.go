//go:build planted

package fsm

import (
	"github.com/coordd/coord/internal/planted"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

func init() {
	planted.Register(planted.ForgetResults, func(x ...any) { forgetResults(x[0].(*session.Table)) })
	planted.Register(planted.DropSession, func(x ...any) { dropSession(x[0].(*session.Table)) })
	planted.Register(planted.MapOrder, func(x ...any) { shuffle(x[0].([]znode.Op)) })
}

// forgetResults makes each line go on behind what was acknowledged.
func forgetResults(t *session.Table) {
	var ids []session.ID
	for s := range t.All() {
		ids = append(ids, s.ID)
	}
	for _, id := range ids {
		s := t.Edit(id)
		var l session.Line
		for l.Next() <= s.Line.Acked() {
			l.Record(l.Next(), nil, false)
		}
		l.Ack(s.Line.Acked())
		s.Line = l
	}
}

// dropSession takes the oldest session out of the table, and leaves its znodes.
func dropSession(t *session.Table) {
	for s := range t.All() {
		t.End(s.ID, session.Expired, 0, 0)
		return
	}
}

// shuffle puts operations into the order of a map.
func shuffle(ops []znode.Op) {
	byIndex := map[int]znode.Op{}
	for i, op := range ops {
		byIndex[i] = op
	}
	n := 0
	for _, op := range byIndex {
		ops[n] = op
		n++
	}
}
