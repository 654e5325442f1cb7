package memnet

import (
	"sync"
	"syscall"
	"time"
)

// Cut makes nothing pass between two hosts until heal is called. What is under
// way, ends of connections too, stays where it is and goes on then, as
// retransmitted packets do. Cuts of one link add up: it carries again when all
// are healed. heal may be called twice.
func (n *Network) Cut(a, b string) (heal func()) {
	return n.disturb(func(by int) { n.cuts[between(a, b)] += by })
}

// CutOneWay makes nothing pass from one host to another until heal is called,
// while the other direction carries: a firewall that was set up in one place
// only. No connection is made meanwhile, as that takes both directions.
func (n *Network) CutOneWay(from, to string) (heal func()) {
	return n.disturb(func(by int) { n.oneWay[route{from, to}] += by })
}

// CutOff cuts a host off from every other, also from those to come.
func (n *Network) CutOff(host string) (heal func()) {
	return n.disturb(func(by int) { n.cutOff[host] += by })
}

// Freeze makes a host stand still, as SIGSTOP does: it reads, writes, dials,
// accepts and closes nothing, while what it has written before arrives and what
// is sent to it waits. Its calls hang until thaw, their deadline, or the close of
// the connection by its own side, which the other side sees after thaw.
func (n *Network) Freeze(host string) (thaw func()) {
	return n.disturb(func(by int) { n.frozen[host] += by })
}

// Down makes a host look as if the process on it had ended, whatever still runs
// there: its connections are reset, and new ones refused, in both directions,
// until up.
func (n *Network) Down(host string) (up func()) {
	up = n.disturb(func(by int) { n.down[host] += by })
	n.Reset(host)
	return up
}

// disturb changes a count up now and down once when undo is called.
func (n *Network) disturb(change func(by int)) (undo func()) {
	do := func(by int) {
		n.mu.Lock()
		defer n.mu.Unlock()
		change(by)
		n.refreshLocked()
	}
	do(1)
	return sync.OnceFunc(func() { do(-1) })
}

// Delay makes everything between two hosts take d in each direction, from what is
// written from now on. The order stays.
func (n *Network) Delay(a, b string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delays[between(a, b)] = max(0, d)
	n.refreshLocked()
}

// DelayAll makes everything take d between any two hosts for which Delay was not
// called.
func (n *Network) DelayAll(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = max(0, d)
	n.refreshLocked()
}

// delayLocked is the delay between two hosts.
func (n *Network) delayLocked(a, b string) time.Duration {
	if d, ok := n.delays[between(a, b)]; ok {
		return d
	}
	if a == b {
		return 0
	}
	return n.delay
}

// Reset breaks all connections of a host, as its end does: both sides get
// ECONNRESET at once, and what was under way is lost.
func (n *Network) Reset(host string) {
	n.reset(func(p *pipe) bool { return p.from == host || p.to == host })
}

// ResetBetween breaks the connections between two hosts.
func (n *Network) ResetBetween(a, b string) {
	n.reset(func(p *pipe) bool { return between(p.from, p.to) == between(a, b) })
}

func (n *Network) reset(which func(*pipe) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for p := range n.conns {
		if which(p) {
			p.fail(syscall.ECONNRESET)
			delete(n.conns, p)
		}
	}
}

// blockedLocked says that nothing passes from one host to another.
func (n *Network) blockedLocked(from, to string) bool {
	if from == to {
		return false // a machine always reaches itself
	}
	return n.cuts[between(from, to)] > 0 || n.oneWay[route{from, to}] > 0 || n.cutOff[from] > 0 || n.cutOff[to] > 0
}

// refreshLocked tells everybody who may wait for it that the network has changed.
func (n *Network) refreshLocked() {
	for p := range n.conns {
		p.set(n.stateLocked(p))
	}
	for address, l := range n.listeners {
		l.setFrozen(n.frozen[hostOf(address)] > 0)
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *Network) stateLocked(p *pipe) state {
	return state{
		cut:          n.blockedLocked(p.from, p.to),
		writerFrozen: n.frozen[p.from] > 0,
		readerFrozen: n.frozen[p.to] > 0,
		delay:        n.delayLocked(p.from, p.to),
	}
}
