package cluster

import (
	"crypto/tls"
	"fmt"
	"strings"
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
		{func(c *Config) { c.DiskReserve = 1 << 20 }, "disk reserve"},
		{func(c *Config) { c.DiskReserve = -1 }, ""},
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
