package zkimport

import "sync/atomic"

// Progress says how far an import is. The zero value is ready. It is safe for
// concurrent use.
type Progress struct {
	phase       atomic.Pointer[string]
	done, total atomic.Int64
	bytes       atomic.Int64
}

// State is what a Progress says at one moment.
type State struct {
	Phase string // "reading", "comparing" or "copying"; "" before the first
	Done  int64  // znodes
	Total int64  // 0: not known
	Bytes int64  // data copied
}

// State returns where the import is.
func (p *Progress) State() State {
	s := State{Done: p.done.Load(), Total: p.total.Load(), Bytes: p.bytes.Load()}
	if phase := p.phase.Load(); phase != nil {
		s.Phase = *phase
	}
	return s
}

// begin starts a phase. A nil Progress tells nobody.
func (p *Progress) begin(phase string, total int) {
	if p == nil {
		return
	}
	p.done.Store(0)
	p.total.Store(int64(total))
	p.phase.Store(&phase)
}

func (p *Progress) add(nodes int, bytes int64) {
	if p == nil {
		return
	}
	p.done.Add(int64(nodes))
	p.bytes.Add(bytes)
}
