package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coordd/coord/cluster"
)

// part is what a host is meant to be in the cluster.
type part uint8

const (
	absent    part = iota // it has no server, or one that is to be none
	voting                // it is to have a vote
	observing             // it is to serve without one
)

// is the part of a host.
func (h *host) is() part {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.part
}

// address is where the others find it.
func (h *host) address() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprintf("%s:%d", h.name, h.port)
}

// present are the hosts with a part, in their order.
func (w *world) present() []*host {
	return slices.DeleteFunc(slices.Clone(w.hosts), func(h *host) bool { return h.is() == absent })
}

// voters is how many are to have a vote.
func (w *world) voters() (n int) {
	for _, h := range w.hosts {
		if h.is() == voting {
			n++
		}
	}
	return n
}

// enrol gives a host its part, and a configuration file that lists who is there
// now. The files of the others stay as they are.
func (w *world) enrol(h *host, p part) {
	h.set(func(h *host) { h.part = p })
	var peers, observers []cluster.Peer
	for _, other := range w.present() {
		entry := cluster.Peer{Name: other.name, Address: other.address()}
		if other.is() == observing {
			observers = append(observers, entry)
		} else {
			peers = append(peers, entry)
		}
	}
	h.set(func(h *host) { h.peers, h.observers = peers, observers })
}

// mayLose says that one disk of that part may go for good: all servers are there,
// and the others alone are a quorum. Then changing is locked.
func (w *world) mayLose(h *host) bool {
	if !w.changing.TryLock() {
		return false
	}
	if h.is() == voting && w.voters() < 3 || w.whole() != nil {
		w.changing.Unlock()
		return false
	}
	return true
}

// awaitWhole waits until all servers are what they are meant to be, or faults end.
func (w *world) awaitWhole() {
	for w.whole() != nil && w.sleep(w.cfg.paces(2)) {
	}
}

// grow starts so many servers that have never been there that the number of voters
// is odd, and larger.
func (w *world) grow() bool {
	if !w.changing.TryLock() {
		return false
	}
	defer w.changing.Unlock()
	begun := 0
	for _, h := range w.spares() {
		if begun > 0 && w.voters()%2 == 1 {
			break
		}
		if w.begin(h) {
			begun++
		}
	}
	if begun > 0 {
		w.awaitWhole()
	}
	return begun > 0
}

// spares are the hosts that could become voters.
func (w *world) spares() []*host {
	return slices.DeleteFunc(slices.Clone(w.hosts), func(h *host) bool { return h.is() != absent || h.watcher })
}

// begin starts a server on a host that has none.
func (w *world) begin(h *host) bool {
	if !h.claim() {
		return false
	}
	defer h.release()
	w.enrol(h, voting)
	w.revive(h)
	return true
}

// shrink takes two servers out, one after the other, so that three or more are left.
func (w *world) shrink(s Step) bool {
	if !w.changing.TryLock() {
		return false
	}
	defer w.changing.Unlock()
	gone := 0
	for range 2 {
		h := w.server(s.A)
		if w.voters() <= 3 || h.is() != voting || !h.claim() {
			break
		}
		if out, known := w.takeOut(h, s); out && known {
			gone++
		} else if out {
			w.comeBack(h, voting)
		}
		h.release()
		w.awaitWhole()
	}
	return gone > 0
}

// remove takes a server out, also at a bad time, and lets it join again as a new
// one.
func (w *world) remove(h *host, s Step) bool {
	was := h.is()
	if !w.changing.TryLock() {
		return false
	}
	defer w.changing.Unlock()
	if was == absent || was == voting && w.voters() < 3 {
		return false
	}
	out, known := w.takeOut(h, s)
	if out {
		w.comeBack(h, was)
		w.awaitWhole()
	}
	return out && known
}

// comeBack starts a host without a disk as a new server.
func (w *world) comeBack(h *host, p part) {
	w.enrol(h, p)
	w.revive(h)
}

// The ways in which a server is taken out: the B of a step.
const (
	whileRunning = iota
	whileCutOff
	whileDead
	waysOut
)

// takeOut removes the server of a host that was claimed: out says that it is gone,
// with its disk. If nobody knows whether it was removed its disk goes all the same,
// as what was removed cannot come back with it.
func (w *world) takeOut(h *host, s Step) (out, known bool) {
	p := h.running()
	if p == nil {
		return false, false
	}
	heal := func() {}
	switch s.B % waysOut {
	case whileCutOff:
		heal = w.net.CutOff(h.name)
		w.sleep(w.cfg.paces(3)) // the leader misses it
	case whileDead:
		p.kill()
		w.sleep(w.cfg.paces(3))
	}
	defer heal()
	if err := w.dismiss(h.name, true); err != nil { // certainly not done
		w.note("%s is not to be removed: %v", h.name, err)
		if p.isDead() {
			w.revive(h)
		}
		return false, false
	}
	err := w.dismiss(h.name, false)
	w.note("remove %s: %v", h.name, err)
	if err == nil {
		w.sleep(s.Lasts)
		heal()
		w.seeOff(h, p.isDead())
	}
	w.vacate(h)
	return true, err == nil
}

// dismiss asks any other server to remove one.
func (w *world) dismiss(name string, dryRun bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.paces(30))
	defer cancel()
	for _, h := range w.present() {
		if p := h.running(); p != nil && h.name != name {
			return w.ours(func() error {
				_, err := p.server.Node().RemoveMember(ctx, name, dryRun)
				return err
			})
		}
	}
	return cluster.ErrNotLeader
}

// farewell is how many paces a server that was removed and reaches the others may
// take to hear of it.
const farewell = 100

// seeOff lets a server that was removed come back with its data. It has to hear that
// it is none any more, to end because of that, and not to start again. Other faults
// may be in the way for long; in a steady run there are none.
func (w *world) seeOff(h *host, dead bool) {
	if dead {
		w.revive(h)
	}
	p := h.current()
	t := time.NewTimer(w.cfg.paces(farewell))
	defer t.Stop()
	select {
	case <-p.done:
	case <-w.healing:
		return
	case <-t.C:
		if w.cfg.Steady {
			w.wrong("%s was removed, and goes on", h.name)
		}
		return
	}
	if p.isDead() {
		return // by its own disk
	}
	if !errors.Is(p.err, cluster.ErrRemoved) {
		w.wrong("%s was removed, and ended with %v", h.name, p.err)
		return
	}
	if err := h.start(); !errors.Is(err, cluster.ErrRemoved) {
		w.wrong("%s was removed, and starts with its data: %v", h.name, err)
	}
}

// vacate ends a server and takes its disk away.
func (w *world) vacate(h *host) {
	h.current().kill()
	<-h.current().done
	h.set(func(h *host) { h.part = absent })
	if err := os.RemoveAll(filepath.Join(h.dir, "data")); err != nil {
		w.wrong("%v", err)
	}
}

// replace puts a server with a new name into the place of one whose machine is lost.
func (w *world) replace(h *host, s Step) bool {
	spares := w.spares()
	if len(spares) == 0 || h.is() != voting || !w.mayLose(h) {
		return false
	}
	defer w.changing.Unlock()
	w.vacate(h)
	w.sleep(s.Lasts)
	if !w.begin(spares[0]) {
		w.comeBack(h, voting)
		w.awaitWhole()
		return false
	}
	// It has to go however the faults are; then the number of voters is what it was.
	out := w.until(600, h.name+" is out", func() error {
		err := w.dismiss(h.name, false)
		if errors.Is(err, cluster.ErrNoMember) {
			return nil
		}
		return err
	})
	w.awaitWhole()
	return out
}

// move gives a server another address, which the files of the others do not have;
// every second time its disk does not come along.
func (w *world) move(h *host, p *process, s Step) bool {
	if !w.mayLose(h) {
		return false
	}
	defer w.changing.Unlock()
	p.kill()
	<-p.done
	if s.B%2 == 1 {
		if err := os.RemoveAll(filepath.Join(h.dir, "data")); err != nil {
			w.wrong("%v", err)
		}
	}
	h.set(func(h *host) { h.port++ })
	w.enrol(h, h.is())
	w.sleep(s.Lasts)
	w.revive(h)
	w.awaitWhole()
	return true
}

// turn makes a voter of an observer, or of a voter that was one an observer again.
func (w *world) turn(h *host, p *process, s Step) bool {
	to := voting
	if h.is() == voting {
		to = observing
	}
	if !h.watcher || !w.mayLose(h) {
		return false
	}
	defer w.changing.Unlock()
	p.kill()
	<-p.done
	w.enrol(h, to)
	w.sleep(s.Lasts)
	w.revive(h)
	w.awaitWhole()
	return true
}

// ours makes a change of the membership, and looks at it as soon as the leader has it:
// one that has lost its quorum by that leads for half a pace at most.
func (w *world) ours(change func() error) error {
	before, began := w.electorate(), time.Now()
	done := make(chan error, 1)
	go func() { done <- change() }()
	for judged := false; ; {
		select {
		case err := <-done:
			if !judged {
				w.weigh(before, began)
			}
			return err
		case <-time.After(w.cfg.paces(0.05)):
			judged = judged || w.weigh(before, began)
		}
	}
}

// weigh looks whether the leader has other voters than before, and whether too few of
// them can agree on that: those that were dead all the time cannot have been asked. It
// returns false while nothing has changed.
func (w *world) weigh(before []string, began time.Time) bool {
	after := w.electorate()
	if len(before) == 0 || len(after) == 0 || slices.Equal(before, after) {
		return false
	}
	var there []string
	for _, h := range w.hosts {
		if p := h.current(); p != nil && slices.Contains(after, p.id) && p.ranAfter(began) {
			there = append(there, p.id)
		}
	}
	if len(there) <= len(after)/2 {
		w.wrong("a step of an operator made %s of %s, and only %s were there to agree",
			strings.Join(after, ", "), strings.Join(before, ", "), strings.Join(there, ", "))
	}
	return true
}

// electorate are the voters in the leader's eyes, nil while nobody leads.
func (w *world) electorate() (out []string) {
	h := w.leader()
	if h == nil {
		return nil
	}
	p := h.running()
	if p == nil {
		return nil
	}
	all := p.server.Node().Members(context.Background())
	if !all.FromLeader {
		return nil
	}
	for _, m := range all.Members {
		if m.Role == cluster.RoleVoter || m.Role == cluster.RoleLeader {
			out = append(out, m.ID)
		}
	}
	return out
}
