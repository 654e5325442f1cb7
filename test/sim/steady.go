package sim

import "fmt"

// steadyKinds are the faults of a steady run: what may happen to a server that does
// not lead.
var steadyKinds = []Kind{
	Kill, KillInWrite, PowerLoss, Restart, Wipe, Remove, Freeze, Isolate, Cut, CutOneWay, Lag, Reset, SlowDisk, StallDisk, HangDisk,
	Snapshot, SlowApply, CutClient, PauseClient, LoseClient, Grow, Shrink, Replace, Move, Turn,
}

// reign is who leads, and in which term.
func (w *world) reign() string {
	h := w.leader()
	if h == nil {
		return "nobody"
	}
	p := h.running()
	if p == nil {
		return "nobody"
	}
	return fmt.Sprintf("%s in term %d", h.name, p.server.Node().Status().Term)
}

// guardReign looks, until faults end, whether the leader of the beginning goes on to
// lead. In a steady run nothing has ever happened to it, nor to more than one of the
// others.
func (w *world) guardReign() {
	first := w.reign()
	for w.sleep(w.cfg.paces(0.25)) {
		if now := w.reign(); now != first {
			w.wrong("a healthy leader was deposed: first it was %s, and now it is %s", first, now)
			return
		}
	}
}

// alone does a step of a steady run when the one before it is over, and all is well
// again.
func (w *world) alone(s Step) bool {
	if !w.calm.TryLock() {
		return false
	}
	defer w.calm.Unlock()
	done := w.carryOut(s)
	w.awaitWhole()
	w.sleep(w.cfg.paces(3))
	return done
}
