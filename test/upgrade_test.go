package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
)

// The release that comes next knows one feature level more. Its servers take the
// place of the old ones one by one, as docs/ops.md says, while clients go on; one
// of them is taken back in between.
func TestRollingUpgradeIsNotFelt(t *testing.T) {
	skipIfShort(t)
	next := program(t, "coordd:nextlevel")
	c := startProcesses(t, 3, smallLog)
	w := startCounters(t, c.endpoints(), 4)
	holder := dial(t, c.endpoints())
	if _, err := holder.Create(context.Background(), "/held", nil, client.WithEphemeral()); err != nil {
		t.Fatal(err)
	}
	first := c.nodes[0]
	c.replace(first, next)
	first.mustSnapshot() // which the old release has to read
	c.replace(first, "")
	c.expectLevels(1, 1)
	for i, p := range c.nodes {
		c.replace(p, next)
		common := uint32(1)
		if i == len(c.nodes)-1 {
			common = 2
		}
		u := c.expectLevels(1, common)
		for _, old := range c.nodes[i+1:] {
			if !strings.Contains(strings.Join(u.Behind, "\n"), old.name+" knows level 1") {
				t.Errorf("%q does not name %s", u.Behind, old.name)
			}
		}
		w.waitProgress(20 * time.Second)
	}
	c.coordctl(append(opsLine(t, "Upgrade", "coordctl cluster upgrade"), "--yes")...)
	c.expectLevels(2, 2)
	for _, p := range c.nodes {
		p.mustSnapshot()
	}
	w.waitProgress(20 * time.Second)
	c.oldServerStaysOut(first, next)
	w.stop()
	if _, ok, err := holder.Exists(context.Background(), "/held"); err != nil || !ok {
		t.Errorf("the session of before the upgrade: ephemeral there %v, %v", ok, err)
	}
	c.sameDigests()
}

// replace stops a server and starts it with another program, as an operator does:
// nothing else is touched before it is ready.
func (c *processes) replace(p *process, binary string) {
	c.t.Helper()
	readOps(c.t).has(c.t, "Upgrade", "systemctl stop coordd") // SIGTERM is what it sends
	p.stop()
	p.binary = binary
	readOps(c.t).has(c.t, "Upgrade", "systemctl start coordd")
	p.start()
	c.coordctl(opsLine(c.t, "Upgrade", "coordctl wait ready --node n1 --stable 10s --for 3m", "n1", p.name, "10s", "1s")...)
}

// coordctl runs the command against all servers and returns what it prints.
func (c *processes) coordctl(args ...string) string {
	c.t.Helper()
	cmd := exec.Command(program(c.t, "coordctl"), append([]string{"-e", c.target()}, args...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("coordctl %s: %v\n%s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return string(out)
}

type upgradeState struct {
	Level, Common uint32
	Behind        []string
}

// expectLevels waits until the leader has heard what everybody knows.
func (c *processes) expectLevels(level, common uint32) (u upgradeState) {
	c.t.Helper()
	poll(c.t, 30*time.Second, "levels", func() error {
		u = upgradeState{}
		if err := json.Unmarshal([]byte(c.coordctl(append(opsLine(c.t, "Upgrade", "coordctl cluster upgrade --dry-run"), "--json")...)), &u); err != nil {
			return err
		}
		if u.Level != level || u.Common != common {
			return fmt.Errorf("level %d, common %d, behind %q, want %d and %d", u.Level, u.Common, u.Behind, level, common)
		}
		return nil
	})
	return u
}

func (p *process) mustSnapshot() {
	p.c.t.Helper()
	poll(p.c.t, 30*time.Second, "snapshot of "+p.name, func() error {
		conn, err := grpc.NewClient(p.grpc(), grpc.WithTransportCredentials(p.c.credentials()))
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		reply, err := coordpb.NewAdminClient(conn).Snapshot(ctx, &coordpb.SnapshotRequest{})
		if err == nil && reply.GetError() != nil {
			err = errors.New(reply.GetError().GetMessage())
		}
		return err
	})
}

// oldServerStaysOut starts the old release in a cluster that was raised: with its
// data it ends and says why, without data it is not taken in. The new one is.
func (c *processes) oldServerStaysOut(p *process, next string) {
	t := c.t
	t.Helper()
	p.stop()
	p.binary = ""
	before := logSize(p)
	p.start()
	poll(t, 30*time.Second, "the old server ends", func() error {
		if p.running() {
			return errors.New("it runs")
		}
		return nil
	})
	text := logSince(p, before)
	if !strings.Contains(text, "version 2, this server knows 1: a newer release wrote it, install that one again") {
		t.Errorf("it does not name both versions and what to do:\n%s", text)
	}
	if strings.Contains(text, `"ready":true`) {
		t.Errorf("it has served an older state:\n%s", text)
	}
	if err := os.RemoveAll(p.dataDir()); err != nil {
		t.Fatal(err)
	}
	p.start()
	poll(t, 30*time.Second, "the old server is refused", func() error {
		st, err := p.status()
		if err == nil && !strings.Contains(st.Waiting, "raised to feature level 2, and "+p.name+" knows 1") {
			err = fmt.Errorf("it waits for %q", st.Waiting)
		}
		return err
	})
	p.stop()
	p.binary = next
	p.start()
	c.waitReady(60 * time.Second)
}

func logSize(p *process) int64 {
	st, err := os.Stat(p.log())
	if err != nil {
		return 0
	}
	return st.Size()
}

// logSince is what a server has logged behind the byte from.
func logSince(p *process, from int64) string {
	b, _ := os.ReadFile(p.log())
	return string(b[min(int64(len(b)), from):])
}
