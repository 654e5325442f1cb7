package server

import "github.com/coordd/coord/fsm"

// walk answers one page of a subtree, each node before those below it.
func (s *Server) walk(q *reading, v *fsm.View) (*readResult, error) {
	r := q.read
	entries, more, err := v.Tree.Walk(r.GetPath(), q.caller, r.GetAfter(), s.page(r.GetLimit()))
	if err != nil {
		return nil, err
	}
	const overhead = 96 // of a Stat
	res := &readResult{more: more, nodes: make([]walked, 0, len(entries))}
	for i := range entries {
		e := &entries[i]
		n := walked{path: e.Path, stat: e.Stat, denied: e.Denied}
		size := overhead + len(e.Path)
		if r.GetWithData() {
			n.data = e.Data
			size += len(e.Data)
		}
		if res.size+size > s.replyBytes() && i > 0 {
			res.more = true
			break
		}
		res.size += size
		res.nodes = append(res.nodes, n)
	}
	return res, nil
}
