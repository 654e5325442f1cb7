package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/test/internal/smalldisk"
	"github.com/coordd/coord/test/internal/tunnet"
	"github.com/coordd/coord/test/internal/wallclock"
)

// diskBytes of each server's own file system: room for the reserve, for a segment
// of the log, and for snapshots, twice.
const diskBytes = 512 << 20

// sliceOfFaults is how long a history gets.
const sliceOfFaults = time.Minute

// TestFaultsOfAllKinds disturbs networks, processes, disks and clocks at random,
// two things at a time, and of five servers two at once. Clients see delays; what
// they were told holds.
func TestFaultsOfAllKinds(t *testing.T) {
	skipIfShort(t)
	for _, c := range sizes(*length) {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, seed.New(t), rigOptions{
				servers: c.servers, network: true, diskSize: diskBytes, badDisks: true,
				config: "raft: {snapshot_log_size: 1MiB, write_deadline: 2s}\n",
			})
			var hosts []*tunnet.Host
			for done := time.Duration(0); done < c.share && !t.Failed(); done += sliceOfFaults {
				hosts = r.faultsFor(done, min(sliceOfFaults, c.share-done), hosts)
			}
			carried, lost, repeated := r.net.Counts()
			t.Logf("%d packets carried, %d lost, %d repeated", carried, lost, repeated)
		})
	}
}

// faultsFor disturbs the cluster for a while, and judges what clients at the
// hosts have seen. It returns the hosts, for the next slice.
func (r *rig) faultsFor(at, length time.Duration, hosts []*tunnet.Host) []*tunnet.Host {
	r.t.Helper()
	l := r.startLoad(loadOptions{root: fmt.Sprintf("/faults-%.0f", at.Seconds()), clients: 5, hosts: hosts})
	l.waitProgress(100, time.Minute)
	end := time.Now().Add(length)
	var calm sync.RWMutex // held by whoever needs everything else whole
	var lanes sync.WaitGroup
	network, machine := newFaults(r, l, &calm), newFaults(r, l, &calm)
	lanes.Go(func() { r.disturb(network, (*faults).network, end) })
	lanes.Go(func() { r.disturb(machine, (*faults).machine, end) })
	lanes.Wait()
	r.net.Heal()
	r.startAll()
	r.waitReady(2 * time.Minute)
	l.finish()
	return l.hosts
}

// faults is what can go wrong. Each fault ends by itself, healed.
type faults struct {
	r    *rig
	l    *load
	calm *sync.RWMutex
	rnd  *rand.Rand
}

func newFaults(r *rig, l *load, calm *sync.RWMutex) *faults {
	return &faults{r, l, calm, rand.New(rand.NewPCG(r.rnd.Uint64(), 0))}
}

// disturb does one fault after the other.
func (r *rig) disturb(f *faults, kinds func(*faults) []func(), end time.Time) {
	all := kinds(f)
	for time.Now().Before(end) {
		f.sleep(0, 1500*time.Millisecond)
		all[f.rnd.IntN(len(all))]()
	}
}

func (f *faults) sleep(least, most time.Duration) { time.Sleep(f.time(least, most)) }

func (f *faults) time(least, most time.Duration) time.Duration {
	return least + time.Duration(f.rnd.Int64N(int64(most-least)))
}

func (f *faults) node() *node { return f.r.nodes[f.rnd.IntN(len(f.r.nodes))] }

// few are the victims of what a cluster must endure without a pause.
func (f *faults) few() []*node { return f.r.few(f.rnd) }

// each does something with each of some servers.
func (f *faults) each(victims []*node, what string, do func(*node)) {
	for _, p := range victims {
		f.r.tell("%s: %s", p.name, what)
		do(p)
	}
}

// network lists what goes wrong between hosts.
func (f *faults) network() []func() {
	between := func(what string, others func(...*node) []*tunnet.Host, link func() (out, in tunnet.Link)) func() {
		return func() {
			f.calm.RLock()
			defer f.calm.RUnlock()
			victims := f.few()
			out, in := link()
			f.each(victims, what, func(p *node) {
				for _, h := range others(victims...) {
					f.r.net.Set(p.host, h, out)
					f.r.net.Set(h, p.host, in)
				}
			})
			f.sleep(300*time.Millisecond, 4*time.Second)
			f.r.net.Heal()
			f.r.tell("network healed")
		}
	}
	cut := tunnet.Link{Cut: true}
	both := func(l tunnet.Link) func() (_, _ tunnet.Link) { return func() (_, _ tunnet.Link) { return l, l } }
	return []func(){
		between("cut off from the other servers", f.servers, both(cut)),
		between("cut off from everybody", f.everybody, both(cut)),
		between("is not heard by the other servers", f.servers, func() (_, _ tunnet.Link) { return cut, tunnet.Link{} }),
		between("hears nothing from the other servers", f.servers, func() (_, _ tunnet.Link) { return tunnet.Link{}, cut }),
		between("is not heard by its clients", f.clients, func() (_, _ tunnet.Link) { return cut, tunnet.Link{} }),
		between("has lost its clients", f.clients, both(cut)),
		between("has a slow network", f.everybody, f.slow),
		between("has a bad network", f.everybody, f.bad),
		f.cutClient,
	}
}

func (f *faults) slow() (_, _ tunnet.Link) {
	l := tunnet.Link{Delay: f.time(5*time.Millisecond, 120*time.Millisecond), Jitter: f.time(1, 30*time.Millisecond)}
	return l, l
}

func (f *faults) bad() (_, _ tunnet.Link) {
	l := tunnet.Link{Loss: 0.2 * f.rnd.Float64(), Repeat: 0.2 * f.rnd.Float64(), Jitter: 3 * time.Millisecond}
	return l, l
}

// servers are the hosts of all others: two victims keep each other.
func (f *faults) servers(not ...*node) (out []*tunnet.Host) {
	for _, p := range f.r.others(not...) {
		out = append(out, p.host)
	}
	return out
}

func (f *faults) clients(...*node) []*tunnet.Host { return f.l.hosts }

func (f *faults) everybody(not ...*node) []*tunnet.Host {
	return append(f.servers(not...), f.l.hosts...)
}

// cutClient cuts a client off from all servers: for some longer than their session
// lives.
func (f *faults) cutClient() {
	f.calm.RLock()
	defer f.calm.RUnlock()
	h := f.l.hosts[f.rnd.IntN(len(f.l.hosts))]
	f.r.tell("%s: cut off from all servers", h.Name())
	for _, p := range f.r.nodes {
		f.r.net.SetBoth(h, p.host, tunnet.Link{Cut: true})
	}
	f.sleep(300*time.Millisecond, 6*time.Second)
	f.r.net.Heal()
	f.r.tell("%s: network healed", h.Name())
}

// machine lists what goes wrong with servers, their disks and their clocks.
func (f *faults) machine() []func() {
	return []func(){
		f.kill, f.killAll, f.stop, f.pause, f.pauseAll, f.powerCut, f.powerCutOfAll,
		f.slowDisk, f.hungDisk, f.fullDisks, f.readOnlyDisk, f.wrongClock, f.damage,
	}
}

func (f *faults) kill() {
	f.each(f.few(), "kill", (*node).Kill)
	f.sleep(0, 2*time.Second)
	f.r.startAll()
}

func (f *faults) killAll() {
	f.each(f.r.nodes, "kill", (*node).Kill)
	f.sleep(0, time.Second)
	f.r.startAll()
}

// stop asks servers to end. They must do so whatever goes on.
func (f *faults) stop() {
	victims := f.few()
	f.each(victims, "stop", func(p *node) { p.Signal(syscall.SIGTERM) })
	for _, p := range victims {
		if !p.Ended(20 * time.Second) {
			f.r.t.Errorf("%s did not stop within 20 s", p.name)
			p.Kill()
		}
	}
	f.sleep(0, time.Second)
	f.r.startAll()
}

func (f *faults) pause() { f.pauseOf(4*time.Second, f.few()) }

func (f *faults) pauseAll() { f.pauseOf(3*time.Second, f.r.nodes) }

func (f *faults) pauseOf(most time.Duration, victims []*node) {
	f.each(victims, "paused", func(p *node) { p.Signal(syscall.SIGSTOP) })
	f.sleep(200*time.Millisecond, most)
	f.each(victims, "goes on", func(p *node) { p.Signal(syscall.SIGCONT) })
}

func (f *faults) powerCut() { f.powerCutOf(f.few()...) }

func (f *faults) powerCutOfAll() { f.powerCutOf(f.r.nodes...) }

func (f *faults) powerCutOf(victims ...*node) {
	if err := f.r.powerCut(victims...); err != nil {
		f.r.t.Errorf("power cut: %v", err)
	}
	f.sleep(0, time.Second)
	f.r.startAll()
}

// slowDisk freezes disks again and again, for moments.
func (f *faults) slowDisk() {
	victims := f.few()
	f.each(victims, "slow disk", func(*node) {})
	for until := time.Now().Add(f.time(500*time.Millisecond, 3*time.Second)); time.Now().Before(until); {
		f.must(victims, (*smalldisk.Disk).Freeze)
		f.sleep(10*time.Millisecond, 250*time.Millisecond)
		f.must(victims, (*smalldisk.Disk).Thaw)
		f.sleep(time.Millisecond, 50*time.Millisecond)
	}
	f.each(victims, "disk goes on", func(*node) {})
}

// hungDisk freezes disks for longer than a write may take. Their servers cut
// themselves off; whether a process can end before the thaw is the kernel's business.
func (f *faults) hungDisk() {
	victims := f.few()
	f.each(victims, "hung disk", func(*node) {})
	f.must(victims, (*smalldisk.Disk).Freeze)
	f.sleep(3*time.Second, 5*time.Second)
	f.must(victims, (*smalldisk.Disk).Thaw)
	f.each(victims, "disk goes on", func(*node) {})
	f.restart()
}

func (f *faults) fullDisks() {
	victims := f.few()
	if f.rnd.IntN(2) == 0 {
		victims = f.r.others(victims...) // a majority
	}
	f.each(victims, "full disk", func(*node) {})
	f.must(victims, func(d *smalldisk.Disk) error { return d.Fill(0) })
	f.sleep(time.Second, 4*time.Second)
	f.must(victims, (*smalldisk.Disk).Free)
	f.each(victims, "room on the disk", func(*node) {})
	f.restart()
}

// readOnlyDisk makes all writes fail. A server must end, as it cannot keep what
// it says.
func (f *faults) readOnlyDisk() {
	victims := f.few()
	f.each(victims, "read-only disk", func(*node) {})
	f.must(victims, (*smalldisk.Disk).ReadOnly)
	f.sleep(500*time.Millisecond, 3*time.Second)
	f.each(victims, "killed, for its disk is repaired", (*node).Kill)
	f.must(victims, (*smalldisk.Disk).Repair)
	f.restart()
}

// restart starts servers that have ended by themselves.
func (f *faults) restart() {
	f.sleep(0, 500*time.Millisecond)
	f.r.startAll()
}

// wrongClock sets the wall clock of a server far ahead or back.
func (f *faults) wrongClock() {
	p := f.node()
	c, err := wallclock.Of(p.Pid())
	if errors.Is(err, wallclock.ErrUnsupported) {
		f.r.t.Logf("no wrong clocks: %v", err)
	}
	if err != nil {
		f.r.tell("%s: its clock cannot be set: %v", p.name, err)
		return
	}
	for range 1 + f.rnd.IntN(3) {
		d := time.Duration(f.rnd.Int64N(int64(2*365*24*time.Hour))) - 365*24*time.Hour
		f.r.tell("%s: wall clock set by %v", p.name, d.Round(time.Hour))
		if c.Step(d) != nil {
			return // it has ended
		}
		f.sleep(100*time.Millisecond, 2*time.Second)
	}
	if f.rnd.IntN(2) == 0 {
		_ = c.Step(0)
	}
}

// must is for what the test itself does to disks.
func (f *faults) must(victims []*node, do func(*smalldisk.Disk) error) {
	for _, p := range victims {
		if err := do(p.disk); err != nil {
			f.r.t.Errorf("disk of %s: %v", p.name, err)
		}
	}
}
