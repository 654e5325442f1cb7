package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
	"github.com/coordd/coord/test/internal/smalldisk"
)

// diskBytes is the size of a small disk, smallDiskSettings fit servers onto it.
const (
	diskBytes         = 96 << 20
	smallDiskSettings = "raft: {disk_reserve: 8MiB, snapshot_log_size: 4MiB, write_deadline: %v}\n"
)

// A machine that is busy with other disks can keep a sound one from answering for
// seconds: where no disk hangs, none is given up for that.
const (
	noDeadline    = time.Minute
	shortDeadline = 5 * time.Second
)

// startOnDisks runs three servers, each on a file system of its own, with that
// write deadline.
func startOnDisks(t *testing.T, deadline time.Duration) (*processes, map[*process]*smalldisk.Disk) {
	t.Helper()
	skipIfShort(t)
	c := newProcesses(t, 3, fmt.Sprintf(smallDiskSettings, deadline))
	disks := map[*process]*smalldisk.Disk{}
	for _, p := range c.nodes {
		d, err := smalldisk.New(filepath.Join(c.dir, p.name+"-disk"), diskBytes)
		if errors.Is(err, smalldisk.ErrUnsupported) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		disks[p] = d
		p.extraEnv = append(p.extraEnv, "COORDD_NODE_DATA_DIR="+filepath.Join(d.Dir(), "data"))
	}
	t.Cleanup(func() {
		for p, d := range disks {
			mustDo(t, d.Thaw())
			if p.running() {
				p.kill()
			}
			mustDo(t, d.Close())
		}
	})
	for _, p := range c.nodes {
		p.start()
	}
	c.waitReady(60 * time.Second)
	return c, disks
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// room is what the leader says of the disk of p.
func (p *process) room() (*coordpb.Disk, error) {
	st, err := p.c.leader().status()
	if err != nil {
		return nil, err
	}
	for _, m := range st.Members {
		if m.Name == p.name && m.Disk != nil {
			return m.Disk, nil
		}
	}
	return nil, fmt.Errorf("nothing is known of the disk of %s", p.name)
}

func (p *process) waitLow(low bool) {
	p.c.t.Helper()
	poll(p.c.t, 20*time.Second, fmt.Sprintf("%s low %v", p.name, low), func() error {
		d, err := p.room()
		if err == nil && d.Low != low {
			err = fmt.Errorf("%v", d)
		}
		return err
	})
}

// keepFull fills the disk of p unless p is low already: a server that deletes old
// files after the first filling has room again. Once it is low it lives on its
// reserve, which is not for others to take.
func (p *process) keepFull(disk *smalldisk.Disk) error {
	d, err := p.room()
	if err == nil && !d.Low {
		err = errors.Join(disk.Fill(0), fmt.Errorf("%s is not low: %v", p.name, d))
	}
	return err
}

// logBytes is how far the log of p goes.
func (p *process) logBytes() int {
	b, err := os.ReadFile(p.log())
	mustDo(p.c.t, err)
	return len(b)
}

// logged waits for text in the log of p behind its first so many bytes.
func (p *process) logged(text string, from int) {
	p.c.t.Helper()
	poll(p.c.t, 30*time.Second, "log of "+p.name, func() error {
		b, err := os.ReadFile(p.log())
		if err == nil && !strings.Contains(string(b[from:]), text) {
			err = fmt.Errorf("%q is not in it", text)
		}
		return err
	})
}

// lastWords is why p ended, of its log behind its first so many bytes.
func (p *process) lastWords(from int) string {
	b, err := os.ReadFile(p.log())
	mustDo(p.c.t, err)
	for line := range strings.SplitSeq(string(b[from:]), "\n") {
		if strings.Contains(line, "the disk failed: ") {
			return line
		}
	}
	return ""
}

func (c *processes) mustRun() {
	c.t.Helper()
	for _, p := range c.nodes {
		if !p.running() {
			c.t.Errorf("%s has ended", p.name)
		}
	}
}

// Somebody else fills the disk of one server, of the leader too: the others have
// room, so clients notice nothing, and nobody ends.
func TestFullDiskOfOneServerIsNoticedByNobody(t *testing.T) {
	c, disks := startOnDisks(t, noDeadline)
	w := startCounters(t, c.endpoints(), 4)
	bulk := dial(t, c.endpoints())
	for _, which := range []string{"follower", "leader"} {
		p := c.leader()
		if which == "follower" {
			p = c.follower()
		}
		poll(t, 30*time.Second, "a leader with room", func() error {
			err := p.keepFull(disks[p])
			if c.leader() == p {
				err = errors.Join(err, errors.New(p.name+" leads"))
			}
			return err
		})
		writeBulk(t, bulk, 16<<20) // far more than its reserve
		w.waitProgress(20 * time.Second)
		c.mustRun()
		mustDo(t, disks[p].Free())
		p.waitLow(false)
		poll(t, 60*time.Second, p.name+" has caught up", p.ready)
		c.sameDigests()
	}
	w.stop()
}

// The disks of two of three are full: writes are refused with the reason; reads,
// heartbeats, releases and ends of sessions go on; nothing that was acknowledged is
// lost; and with room on one of them everything goes on by itself.
func TestFullDisksOfAMajorityRefuseWritesWithTheReason(t *testing.T) {
	const timeout = 8 * time.Second
	program(t, "coordctl") // now: building it may take longer than a session lives
	c, disks := startOnDisks(t, noDeadline)
	cl := dial(t, c.endpoints(), client.WithSessionTimeout(timeout))
	leaving := dial(t, c.endpoints())
	ctx, cancel := context.WithTimeout(t.Context(), patience*3*time.Minute)
	defer cancel()
	mutex := lock.New(cl, "/lock")
	held, err := mutex.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaving.Create(ctx, "/mine", nil, client.WithEphemeral()); err != nil {
		t.Fatal(err)
	}
	full := c.nodes[:2]
	acknowledged := 0
	poll(t, 30*time.Second, "a refusal", func() error {
		for _, p := range full {
			if err := p.keepFull(disks[p]); err != nil {
				return err
			}
		}
		if _, err = cl.Create(ctx, fmt.Sprintf("/n%d", acknowledged), make([]byte, 50_000)); err == nil {
			acknowledged++
			return errors.New("written")
		}
		return nil
	})
	if !errors.Is(err, client.ErrDiskFull) || !strings.Contains(err.Error(), full[0].name+": ") || !strings.Contains(err.Error(), "reserve") {
		t.Errorf("the refusal does not say why: %v", err)
	}
	if out, code := coordctl(t, c.target(), opsLine(t, "Disks", "coordctl status")...); code != 8 || !strings.Contains(out, full[0].name+" is low on disk: ") || !strings.Contains(out, "writes are refused") {
		t.Errorf("status: exit code %d: %s", code, out)
	}
	time.Sleep(timeout + 2*time.Second) // longer than the session lives without heartbeats
	if _, err := cl.Get(ctx, "/"); err != nil {
		t.Errorf("a read: %v", err)
	}
	mustDo(t, held.Release(ctx))
	mustDo(t, leaving.Close())
	poll(t, 20*time.Second, "the end of a session", func() error {
		if _, ok, err := cl.Exists(ctx, "/mine"); err != nil || ok {
			return fmt.Errorf("there %v, %w", ok, err)
		}
		return nil
	})
	c.mustRun()
	mustDo(t, disks[full[1]].Free())
	began := time.Now()
	poll(t, 30*time.Second, "writes with room", func() error {
		_, err := cl.Create(ctx, "/again", nil)
		return err
	})
	if took := time.Since(began); took > patience*5*time.Second {
		t.Errorf("service came back %v after the room", took)
	} else {
		t.Logf("service came back %v after the room", took)
	}
	mustDo(t, disks[full[0]].Free())
	c.waitReady(60 * time.Second)
	for i := range acknowledged {
		if _, ok, err := cl.Exists(ctx, fmt.Sprintf("/n%d", i)); err != nil || !ok {
			t.Errorf("acknowledged /n%d is there: %v, %v", i, ok, err)
		}
	}
	c.sameDigests()
}

// A disk that does not answer: the server cuts itself off, leader or follower, and
// the others go on. When the disk answers again the process is gone, and a restart
// joins.
func TestServerWhoseDiskHangsIsLeftBehind(t *testing.T) {
	c, disks := startOnDisks(t, shortDeadline)
	w := startCounters(t, c.endpoints(), 4)
	for _, which := range []string{"leader", "follower"} {
		p := c.leader()
		if which == "follower" {
			p = c.follower()
		}
		w.resetPause()
		from := p.logBytes()
		mustDo(t, disks[p].Freeze())
		p.logged("the disk does not answer", from)
		w.waitProgress(20 * time.Second)
		poll(t, 20*time.Second, "another leader", func() error {
			if p.running() && c.leader() == p {
				return errors.New(p.name + " leads")
			}
			return nil
		})
		if pause := w.longestPause(); which == "leader" {
			t.Logf("with the leader's disk hanging writes stood for %v", pause)
		}
		mustDo(t, disks[p].Thaw())
		poll(t, 20*time.Second, "end of "+p.name, func() error {
			if p.running() {
				return errors.New("it runs")
			}
			return nil
		})
		p.start()
		c.waitReady(60 * time.Second)
		w.waitProgress(20 * time.Second)
	}
	w.stop()
	c.sameDigests()
}

// A disk that fails, or that the kernel has made read-only: the server ends with
// the reason, the others go on, and after a repair it comes back.
func TestServerWhoseDiskFailsEndsWithTheReason(t *testing.T) {
	c, disks := startOnDisks(t, noDeadline)
	w := startCounters(t, c.endpoints(), 4)
	for what, fail := range map[string]func(*smalldisk.Disk) error{
		"read-only": (*smalldisk.Disk).ReadOnly, "failing": (*smalldisk.Disk).PowerOff,
	} {
		p := c.leader()
		from := p.logBytes()
		if err := fail(disks[p]); err != nil {
			t.Fatal(err)
		}
		poll(t, 30*time.Second, "end of "+p.name, func() error {
			if p.running() {
				return errors.New("it runs")
			}
			return nil
		})
		p.logged("the disk failed: ", from) // and the kernel's reason, which is one of several
		t.Logf("%s: %s", what, p.lastWords(from))
		w.waitProgress(20 * time.Second)
		mustDo(t, disks[p].Repair())
		p.start()
		c.waitReady(60 * time.Second)
		w.waitProgress(20 * time.Second)
	}
	w.stop()
	c.sameDigests()
}
