package cluster

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func validConfig() Config {
	return Config{
		Name: "n1", DataDir: "data",
		Peers: []Peer{{"n2", "h2:1"}, {"n1", "h1:1"}, {"n3", "h3:1"}},
	}
}

func TestConfigNamesTheFieldThatIsWrong(t *testing.T) {
	for _, c := range []struct {
		spoil func(*Config)
		want  string
	}{
		{func(*Config) {}, ""},
		{func(c *Config) { c.Name = "" }, "name"},
		{func(c *Config) { c.Name = "n4" }, "n4 itself is not listed"},
		{func(c *Config) { c.Name = "n~1" }, "name"},
		{func(c *Config) { c.Peers = nil }, "peers"},
		{func(c *Config) { c.Peers[0].Address = "h1:1" }, "the address of another"},
		{func(c *Config) { c.Peers[0].Name = "n1" }, "the name or the address"},
		{func(c *Config) { c.Peers[0].Address = "h2" }, "missing port"},
		{func(c *Config) { c.Bootstrap = "yes" }, "bootstrap"},
		{func(c *Config) { c.ClusterName = strings.Repeat("x", 500) }, "cluster name"},
		{func(c *Config) { c.DataDir = "" }, "data directory"},
		{func(c *Config) { c.Heartbeat = time.Millisecond }, "heartbeat"},
		{func(c *Config) { c.Election = 50 * time.Millisecond }, "election"},
		{func(c *Config) { c.Lease = time.Second }, "lease"},
		{func(c *Config) { c.WriteDeadline = time.Millisecond }, "write deadline"},
		{func(c *Config) { c.SessionMin = time.Millisecond }, "session timeout"},
		{func(c *Config) { c.LogStore = "sqlite" }, "log store"},
		{func(c *Config) { c.SnapshotLogSize = 5 }, "snapshot log size"},
		{func(c *Config) { c.TLS.Server = &tls.Config{} }, "TLS"},
	} {
		cfg := validConfig()
		c.spoil(&cfg)
		err := cfg.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("Validate() = %v, want something about %q", err, c.want)
		}
	}
}

func TestPeersAreSortedSoThatAllNameTheSameFirst(t *testing.T) {
	c := validConfig().withDefaults()
	if got := fmt.Sprint(c.peerList()); got != "[n1=h1:1 n2=h2:1 n3=h3:1]" {
		t.Errorf("peers %v", got)
	}
	if c.Listen != "h1:1" {
		t.Errorf("listens on %q, want the own entry", c.Listen)
	}
}

func TestFirstEpochIsTheSecondsSince2024(t *testing.T) {
	c := validConfig()
	at := epochZero.Add(100 * time.Hour)
	if got := c.firstEpoch(at); got != 360_000 {
		t.Errorf("first epoch %d", got)
	}
	c.MinEpoch = 1 << 30
	if got := c.firstEpoch(at); got != 1<<30 {
		t.Errorf("with a minimum it is %d", got)
	}
	c.MinEpoch = 0
	if got := c.firstEpoch(epochZero.Add(-time.Hour)); got != 1 {
		t.Errorf("by a clock before 2024 it is %d", got)
	}
}

func TestReportsAreTwentyInTheSmallestTimeout(t *testing.T) {
	for _, c := range []struct{ timeout, want time.Duration }{
		{2 * time.Second, 100 * time.Millisecond},
		{100 * time.Millisecond, 20 * time.Millisecond},
		{time.Minute, 250 * time.Millisecond},
	} {
		if got := (Config{SessionMin: c.timeout}).reportInterval(); got != c.want {
			t.Errorf("for %v every %v, want %v", c.timeout, got, c.want)
		}
	}
}

func TestDiskReserveIsHeldAndGivenUpWhenTheDiskIsFull(t *testing.T) {
	dir := t.TempDir()
	d := newDiskRoom(dir, 1<<20)
	free := int64(1 << 30)
	d.free = func(string) (int64, error) { return free, nil }
	reserve := func() int64 {
		st, err := os.Stat(filepath.Join(dir, reserveFile))
		if errors.Is(err, os.ErrNotExist) {
			return 0
		}
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	for _, step := range []struct {
		free    int64
		low     bool
		reserve int64
	}{
		{1 << 30, false, 1 << 20},
		{1<<20 + 1, false, 1 << 20},
		{1<<20 - 1, true, 0},
		{2<<20 + 1, true, 0}, // the room the reserve had, and a little: not yet
		{1 << 30, false, 1 << 20},
	} {
		free = step.free
		if err := d.look(); err != nil {
			t.Fatal(err)
		}
		if d.isLow() != step.low || reserve() != step.reserve {
			t.Errorf("with %d free: low %v, reserve %d; want %v, %d", step.free, d.isLow(), reserve(), step.low, step.reserve)
		}
	}
}

func TestWritesAreRefusedOnlyWhenAQuorumIsShortOfRoom(t *testing.T) {
	var short [4]atomic.Bool
	tune := func(c *Config) {
		i := c.Name[1] - '0'
		c.DiskReserve = 1 << 20
		c.Faults.FreeBytes = func(string) (int64, error) {
			if short[i].Load() {
				return 0, nil
			}
			return 1 << 30, nil
		}
	}
	inFakeTime(t, 3, tune, func(w *world) {
		w.start()
		w.awaitFormed()
		short[1].Store(true)
		time.Sleep(2 * time.Second)
		if err := w.node("n2").Overloaded(); err != nil {
			t.Errorf("one server is short of room: %v", err)
		}
		if w.node("n1").Status().Ready {
			t.Error("the server that is short of room says it is ready")
		}
		short[3].Store(true)
		w.eventually(4*time.Second, "all refuse", func() bool {
			return errors.Is(w.node("n1").Overloaded(), ErrDiskFull) && errors.Is(w.node("n2").Overloaded(), ErrDiskFull)
		})
		if _, err := w.create("n2", "/still"); err != nil {
			t.Errorf("what is submitted all the same, such as a release: %v", err)
		}
		short[1].Store(false)
		w.eventually(4*time.Second, "all take writes again", func() bool {
			return w.node("n1").Overloaded() == nil && w.node("n3").Overloaded() == nil
		})
	})
}

func TestDataDirectoryIsMeasuredWithoutTheReserve(t *testing.T) {
	dir := t.TempDir()
	d := newDiskRoom(dir, 1<<20)
	if err := d.look(); err != nil { // makes the reserve
		t.Fatal(err)
	}
	if err := d.measure(); err != nil || d.used.Load() != 0 {
		t.Errorf("%d bytes in a directory that has the reserve alone, %v", d.used.Load(), err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a", "b", "c"), make([]byte, 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.measure(); err != nil || d.used.Load() < 100_000 || d.used.Load() > 200_000 {
		t.Errorf("%d bytes for 100000, %v", d.used.Load(), err)
	}
	d.dir = filepath.Join(dir, "none")
	if err := d.measure(); err != nil {
		t.Errorf("a directory that is gone: %v", err)
	}
}
