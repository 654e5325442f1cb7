package cluster

import "log/slog"

// announcer logs the leaderships of this server, each once. While Raft tries in
// vain to hand a leadership over it refuses proposals, and each refusal ends a
// reign; the next begins at once in the same term. Operators are told of the
// term, not of each reign, and once that proposals fail.
//
// One goroutine uses it at a time. The zero value but for log has announced
// nothing.
type announcer struct {
	log    *slog.Logger
	term   uint64 // that was announced and not seen to end; 0: none
	failed bool   // it was said that its proposals fail
}

// look ends the announced leadership unless this server still leads its term.
func (a *announcer) look(term uint64, leads bool) {
	if a.term == 0 || leads && term == a.term {
		return
	}
	a.log.Info("this server leads no more", "term", a.term)
	a.term, a.failed = 0, false
}

// reigns announces the leadership of term.
func (a *announcer) reigns(term uint64) {
	a.look(term, true)
	if a.term == term {
		return
	}
	a.term = term
	a.log.Info("this server leads", "event", "leader_changed", "term", term)
}

// fails says that a proposal of the announced leadership failed.
func (a *announcer) fails(err error) {
	say := a.log.Info
	if a.failed {
		say = a.log.Debug
	}
	a.failed = true
	say("a proposal failed; what is unanswered is offered again", "term", a.term, "err", err)
}
