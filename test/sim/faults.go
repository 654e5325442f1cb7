package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// trouble does the schedule. It returns when all is whole again, and healing is
// closed.
func (w *world) trouble() {
	var steps sync.WaitGroup
	do := w.carryOut
	if w.cfg.Steady {
		do = w.alone
		steps.Go(w.guardReign)
	}
	for _, s := range w.cfg.Plan {
		steps.Go(func() {
			if !w.sleep(s.At - time.Since(w.began)) {
				return
			}
			done := do(s)
			w.note("%s is over: %v", s, done)
			w.mu.Lock()
			defer w.mu.Unlock()
			if done {
				w.happened[s.Kind]++
			}
		})
	}
	time.Sleep(w.cfg.Length - time.Since(w.began))
	close(w.healing)
	steps.Wait()
}

// sleep sleeps, less if healing begins; then it returns false.
func (w *world) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.healing:
		return false
	}
}

// carryOut does one step from its beginning to its end. It returns false if there was
// nothing to be done, because another fault was there first.
func (w *world) carryOut(s Step) bool {
	w.note("%s begins", s)
	switch s.Kind {
	case Grow:
		return w.grow()
	case Shrink:
		return w.shrink(s)
	case Kill, KillInWrite, PowerLoss, Restart, Wipe, Remove, HangDisk, Replace, Move, Turn:
		return w.endAndStart(s)
	case PowerOff:
		return w.powerOff(s)
	case Freeze, Isolate, Cut, CutOneWay, Halve, Lag, CutClient:
		undo := w.disturb(s)
		w.sleep(s.Lasts)
		undo()
	case SlowDisk, StallDisk, Scramble, LoseReports, SlowApply:
		undo := w.server(s.A).impair(s)
		w.sleep(s.Lasts)
		undo()
	case StepClock:
		w.server(s.A).set(func(h *host) { h.step += s.Size })
	case Reset:
		w.net.Reset(w.server(s.A).name)
	case PauseClient, LoseClient, EndSession:
		return w.riders[s.A%len(w.riders)].suffer(s)
	case Transfer, Transfers, Snapshot, Bulk:
		return w.operate(s)
	default:
		w.wrong("no such fault: %s", s.Kind)
	}
	return true
}

// endAndStart ends a server in one of the ways, and starts it again.
func (w *world) endAndStart(s Step) bool {
	h := w.server(s.A)
	if !h.claim() {
		return false
	}
	defer h.release()
	p := h.running()
	if p == nil {
		return false
	}
	switch s.Kind {
	case KillInWrite:
		w.killInWrite(p, wrote)
	case PowerLoss:
		w.killInWrite(p, unwrote)
	case Restart:
		if err := h.stop(); err != nil {
			w.wrong("%s did not stop in order: %v", h.name, err)
		}
	case HangDisk:
		return w.hang(h, p, s)
	case Wipe:
		return w.wipe(h, s)
	case Remove:
		return w.remove(h, s)
	case Replace:
		return w.replace(h, s)
	case Move:
		return w.move(h, p, s)
	case Turn:
		return w.turn(h, p, s)
	default: // Kill
		p.kill()
	}
	w.sleep(s.Lasts)
	w.revive(h)
	return true
}

func (w *world) revive(h *host) {
	if err := h.revive(); err != nil {
		w.wrong("%v", err)
	}
}

// killInWrite kills a process at its next write, or after a while if it writes
// nothing.
func (w *world) killInWrite(p *process, d death) {
	p.doomed(d)
	t := time.NewTimer(w.cfg.paces(5))
	defer t.Stop()
	select {
	case <-p.died:
	case <-t.C:
		p.kill()
	}
}

// hang holds the disk up for longer than a server endures.
func (w *world) hang(h *host, p *process, s Step) bool {
	resume := h.disk.Stall()
	defer resume()
	t := time.NewTimer(max(s.Lasts, w.cfg.paces(writeDeadline+3)))
	defer t.Stop()
	select {
	case <-p.died: // it has given up
	case <-t.C: // it wanted to write nothing
	}
	resume()
	if p.isDead() {
		w.revive(h)
	}
	return true
}

// wipe takes the disk of a server away, and waits until the new one is what the old
// one was.
func (w *world) wipe(h *host, s Step) bool {
	was := h.is()
	if !w.mayLose(h) {
		return false
	}
	defer w.changing.Unlock()
	w.vacate(h)
	w.sleep(s.Lasts)
	w.comeBack(h, was)
	w.awaitWhole()
	return true
}

// powerOff kills all servers, and starts them one after the other.
func (w *world) powerOff(s Step) bool {
	var taken []*host
	for _, h := range w.present() {
		if h.claim() {
			defer h.release()
			taken = append(taken, h)
		}
	}
	for i, h := range taken {
		if p := h.running(); p != nil {
			p.doomed([]death{alive, unwrote, wrote}[(i+s.B)%3])
		}
	}
	w.sleep(w.cfg.paces(0.3)) // some meet their end in a write
	for _, h := range taken {
		if p := h.running(); p != nil {
			p.kill()
		}
	}
	for i, h := range taken {
		w.sleep(s.Lasts / time.Duration(i+1))
		w.revive(h)
	}
	return true
}

// disturb does something to the network.
func (w *world) disturb(s Step) (undo func()) {
	if s.Kind == CutClient {
		return w.net.Cut(w.riders[s.A%len(w.riders)].hostName(), w.server(s.B).name)
	}
	a := w.server(s.A)
	b := w.other(a, s.B)
	switch s.Kind {
	case Freeze:
		return w.net.Freeze(a.name)
	case Isolate:
		return w.net.CutOff(a.name)
	case Cut:
		return w.net.Cut(a.name, b.name)
	case CutOneWay:
		return w.net.CutOneWay(a.name, b.name)
	case Halve:
		return w.halve(a, b)
	default: // Lag
		w.net.Delay(a.name, b.name, s.Size)
		return func() { w.net.Delay(a.name, b.name, w.cfg.paces(linkPaces)) }
	}
}

// halve cuts the servers in two groups, a in one and b in the other.
func (w *world) halve(a, b *host) (undo func()) {
	var undos []func()
	for _, x := range w.hosts {
		for _, y := range w.hosts {
			if side(x, a, b) && !side(y, a, b) {
				undos = append(undos, w.net.Cut(x.name, y.name))
			}
		}
	}
	return func() {
		for _, f := range undos {
			f()
		}
	}
}

// side tells to which of the two groups a host belongs.
func side(x, a, b *host) bool { return x == a || x != b && x.index%2 == 0 }

// impair makes the inside of a server slow, forgetful or confused.
func (h *host) impair(s Step) (undo func()) {
	switch s.Kind {
	case SlowDisk:
		h.set(func(h *host) { h.slow += s.Size })
		return func() { h.set(func(h *host) { h.slow -= s.Size }) }
	case StallDisk:
		return h.disk.Stall()
	case Scramble:
		h.set(func(h *host) { h.wild = true })
		return func() { h.set(func(h *host) { h.wild = false }) }
	case LoseReports:
		h.set(func(h *host) { h.deaf = true })
		return func() { h.set(func(h *host) { h.deaf = false }) }
	default: // SlowApply
		h.set(func(h *host) { h.applies += s.Size })
		return func() { h.set(func(h *host) { h.applies -= s.Size }) }
	}
}

// operate does what operators do.
func (w *world) operate(s Step) bool {
	p := w.server(s.A).running()
	if p == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.paces(20))
	defer cancel()
	switch s.Kind {
	case Transfer:
		_, err := p.server.Node().Transfer(ctx, "")
		return err == nil
	case Transfers:
		for range int(s.Lasts / w.cfg.Pace) {
			_, _ = p.server.Node().Transfer(ctx, "")
			if !w.sleep(w.cfg.paces(1)) {
				break
			}
		}
		return true
	case Snapshot:
		_, err := p.server.Node().Snapshot()
		return err == nil
	default: // Bulk
		return w.bulk() == nil
	}
}

// bulk writes more than a log keeps behind a snapshot.
func (w *world) bulk() error {
	c, err := w.dial("bulk", w.cfg.sessionTimeout())
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	data := make([]byte, 128<<10)
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.paces(30))
	defer cancel()
	var errs []error
	for i := range 20 {
		_, err := c.Create(ctx, fmt.Sprintf("/bulk-%d", i%4), data)
		if err != nil {
			_, err = c.Set(ctx, fmt.Sprintf("/bulk-%d", i%4), data, -1)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
