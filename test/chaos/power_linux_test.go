package chaos

import (
	"os/exec"
	"testing"
	"time"

	"github.com/coordd/coord/internal/check"
	"github.com/coordd/coord/internal/seed"
)

// TestPowerCuts takes the power from all servers at once, or from all but one, again
// and again: what was acknowledged was on their disks, and not only on the way.
func TestPowerCuts(t *testing.T) {
	skipIfShort(t)
	r := newRig(t, seed.New(t), rigOptions{servers: 3, diskSize: diskBytes, config: smallLogs})
	l := r.startLoad(loadOptions{root: "/power", clients: 5})
	for range 5 {
		l.waitProgress(60, time.Minute)
		r.pause(500 * time.Millisecond)
		victims := r.nodes
		if r.rnd.IntN(3) == 0 {
			victims = r.others(r.any())
		}
		if err := r.powerCut(victims...); err != nil {
			t.Fatal(err)
		}
		r.startAll()
		r.waitReady(time.Minute)
	}
	l.finish()
}

// TestPowerCutsShowADiskThatLies runs a server whose disk says that it has synced
// what it has not. What it has then lost must be found: the test above proves
// nothing otherwise.
func TestPowerCutsShowADiskThatLies(t *testing.T) {
	skipIfShort(t)
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is missing, run: make setup")
	}
	r := newRig(t, seed.New(t), rigOptions{servers: 1, diskSize: diskBytes, badDisks: true})
	p := r.nodes[0]
	p.Kill()
	const syncs = "fsync,fdatasync,sync_file_range"
	p.start("strace", "-D", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace="+syncs, "-e", "inject="+syncs+":retval=0")
	r.waitReady(time.Minute)
	l := r.startLoad(loadOptions{root: "/lies", clients: 3})
	l.progressOr(100, 2*time.Second)
	if err := r.powerCut(p); err != nil {
		t.Fatal(err)
	}
	l.stopWork()
	l.stopWatch()
	p.start()
	for deadline := time.Now().Add(20 * time.Second); p.Running() && p.ready() != nil && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	l.stop()
	if !p.Running() || p.ready() != nil {
		t.Logf("found by the server itself: %s", lastLine(p.logSince(0)))
		return
	}
	if err := l.lastLook("/", time.Minute); err != nil {
		t.Fatal(err)
	}
	l.h.Wait()
	found := check.Check(l.h, l.checkOptions())
	if len(found) == 0 {
		t.Errorf("%d operations were acknowledged by a disk that lies, and nothing is missed", l.done.Load())
	}
	for _, v := range found[:min(2, len(found))] {
		t.Logf("found: %v", v)
	}
}

// powerCut ends servers and makes their disks forget what was not synced.
func (r *rig) powerCut(victims ...*node) error {
	for _, p := range victims {
		r.tell("%s: power cut", p.name)
		p.stopForPowerCut()
	}
	for _, p := range victims {
		if err := p.powerCut(); err != nil {
			return err
		}
	}
	return nil
}
