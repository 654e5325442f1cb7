package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

func logTo(level slog.Level) (*bytes.Buffer, hclog.Logger) {
	var b bytes.Buffer
	return &b, newRaftLogger(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})))
}

func TestRaftsValuesAreLoggedAsTheyWereMeant(t *testing.T) {
	b, l := logTo(slog.LevelDebug)
	var nilError *raft.RPC
	l.With("node", "n1").Named("snap").Info("message",
		"format", hclog.Fmt("%d / %d", 3, 4), "stringer", raft.Leader, "error", errors.New("broken"), "hex", hclog.Hex(255),
		"server", raft.Server{ID: "a", Address: "b"}, "bytes", []byte{1}, "nil", nil, "nilptr", nilError, 7, "number key", "odd")
	want := `level=INFO msg="snap: message" node=n1 format="3 / 4" stringer=Leader err=broken hex=0xff ` +
		`server="{Suffrage:Voter ID:a Address:b}" bytes=[1] nil=<nil> nilptr=<nil> 7="number key" extra=odd` + "\n"
	if got := b.String(); got != want {
		t.Errorf("logged\n%s want\n%s", got, want)
	}
}

func TestRaftsLevels(t *testing.T) {
	for _, tc := range []struct {
		level slog.Level
		want  string
		get   hclog.Level
	}{
		{slog.LevelDebug - 4, "DEBUG-4 DEBUG INFO WARN WARN INFO", hclog.Trace},
		{slog.LevelDebug, "DEBUG INFO WARN WARN INFO", hclog.Debug},
		{slog.LevelInfo, "INFO WARN WARN INFO", hclog.Info},
		{slog.LevelWarn, "WARN WARN", hclog.Warn},
		{slog.LevelError, "", hclog.Off},
	} {
		b, l := logTo(tc.level)
		l.Trace("t")
		l.Debug("d")
		l.Info("i")
		l.Warn("w")
		l.Error("e")
		l.Log(hclog.Off, "off")
		fmt.Fprintln(l.StandardWriter(nil), "line")
		var got []string
		for line := range strings.Lines(b.String()) {
			got = append(got, strings.TrimPrefix(strings.Fields(line)[0], "level="))
		}
		if g := strings.Join(got, " "); g != tc.want || l.GetLevel() != tc.get {
			t.Errorf("at %v: %s, level %v; want %s, %v", tc.level, g, l.GetLevel(), tc.want, tc.get)
		}
		for i, is := range []bool{l.IsTrace(), l.IsDebug(), l.IsInfo(), l.IsWarn()} {
			if want := tc.level <= []slog.Level{slog.LevelDebug - 4, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn}[i]; is != want {
				t.Errorf("at %v: Is %d is %v", tc.level, i, is)
			}
		}
	}
}

func TestRepeatedComplaintsAreCountedNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := logTo(slog.LevelInfo)
		for range 200 { // 20 s of a follower that is down
			l.Error("failed to heartbeat to", "peer", "n2", "error", errRefused)
			time.Sleep(100 * time.Millisecond)
		}
		l.Error("failed to heartbeat to", "peer", "n3", "error", errRefused)
		for i := range 10 * maxRepeated {
			l.Warn(fmt.Sprint("message ", i))
		}
		l.Info("said")
		l.Info("said")
		all := b.String()
		if n := strings.Count(all, "peer=n2"); n != 2 || !strings.Contains(all, "repeated=99") {
			t.Errorf("%d lines about n2", n)
		}
		if strings.Count(all, "peer=n3") != 1 || strings.Count(all, "said") != 2 || strings.Count(all, "message ") != 10*maxRepeated {
			t.Error("what is not a repetition was not logged")
		}
	})
}

func TestRaftConfigIsOursAndValid(t *testing.T) {
	_, l := logTo(slog.LevelInfo)
	c, err := newRaftConfig(idA, raftTimes{}, l)
	if err != nil {
		t.Fatal(err)
	}
	if c.LocalID != raft.ServerID(idA) || c.HeartbeatTimeout != 200*time.Millisecond || c.ElectionTimeout != 200*time.Millisecond ||
		c.LeaderLeaseTimeout != 200*time.Millisecond || c.CommitTimeout != 50*time.Millisecond || c.MaxAppendEntries != 256 ||
		c.PreVoteDisabled || !c.NoLegacyTelemetry || c.ProtocolVersion != 3 || c.BatchApplyCh || c.Logger != l {
		t.Errorf("%+v", c)
	}
	if 2*c.SnapshotInterval < c.SnapshotInterval || c.SnapshotThreshold < 1<<60 {
		t.Errorf("raft takes snapshots by itself: every %v, from %d entries", c.SnapshotInterval, c.SnapshotThreshold)
	}
	if _, err := newRaftConfig(idA, raftTimes{heartbeat: time.Second, election: time.Millisecond}, l); err == nil {
		t.Error("an election timeout below the heartbeat is taken")
	}
}

func TestTrailingLogsAreSetByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t, 1, testOptions{})
		defer c.stop()
		l := c.leader(nil)
		cmd := strings.Repeat("x", 1<<20)
		for range 80 {
			c.apply(l, cmd)
		}
		if err := setTrailingLogs(l.raft, l.log, trailingLogBytes); err != nil {
			t.Fatal(err)
		}
		if got := l.raft.ReloadableConfig(); got.TrailingLogs < 63 || got.TrailingLogs > 65 || got.HeartbeatTimeout != 200*time.Millisecond {
			t.Errorf("%+v; want 64 trailing logs", got)
		}
		if err := l.raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		first, _ := l.log.FirstIndex()
		last, _ := l.log.LastIndex()
		if n := last - first + 1; n < 63 || n > 65 {
			t.Errorf("%d entries stay", n)
		}
	})
}
