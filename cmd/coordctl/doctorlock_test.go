package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/znode"
)

// reportOf runs `doctor lock`.
func reportOf(t *testing.T, path string) (lockReport, map[string]finding, int) {
	t.Helper()
	r := on(t, "", "doctor", "lock", "--json", path)
	var doc lockReport
	if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil || len(doc.Findings) != 6 {
		t.Fatalf("%v\n%s%s", err, r.stdout, r.stderr)
	}
	by := map[string]finding{}
	for _, f := range doc.Findings {
		by[f.Question] = f
	}
	return doc, by, r.code
}

// A lock of which nothing is declared is warned of in every line that needs a
// declaration; one of which all is declared and that is held shortly is well.
func TestDoctorLockAsksForDeclarations(t *testing.T) {
	t.Parallel()
	fresh(t, "/dl")
	holding(t, sharedCluster(t), "/dl/bare")
	_, by, code := reportOf(t, "/dl/bare")
	for question, state := range map[string]string{"protects": stateWarn, "stale writers": stateWarn, "token": stateWarn, "idempotency": stateWarn, "partition": stateOK, "hold time": stateOK} {
		if by[question].State != state {
			t.Errorf("%s: %+v", question, by[question])
		}
	}
	if code != exitUnhealthy {
		t.Errorf("exit code %d", code)
	}
	holding(t, sharedCluster(t), "/dl/full", "--label", "protects=invoices", "--label", "fenced=sqlfence", "--label", "token=checked", "--label", "idempotent=key")
	if _, by, code = reportOf(t, "/dl/full"); code != exitOK || !strings.Contains(by["token"].Answer, " is valid; the resource compares it") {
		t.Errorf("exit code %d, %+v", code, by)
	}
	text := on(t, "", "doctor", "lock", "/dl/full")
	if text.code != exitOK || strings.Count(text.stdout, "\n") != 6 || !strings.Contains(text.stdout, "OK    protects         invoices\n") {
		t.Errorf("exit code %d\n%s", text.code, text.stdout)
	}
}

// A lock that is held for longer than half of the session timeout is warned of,
// while it is held and from what the servers still know afterwards.
func TestDoctorLockComparesHoldsWithTheTimeout(t *testing.T) {
	t.Parallel()
	dir := fmt.Sprintf("/dh-%d", time.Now().UnixNano()) // the history knows of earlier runs
	c, err := client.Dial(t.Context(), sharedCluster(t).Target(), client.WithSessionTimeout(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	if _, err := c.Create(ctx, dir, nil); err != nil {
		t.Fatal(err)
	}
	entry := func() client.Created {
		made, err := c.Create(ctx, dir+"/_c_0-lock-", []byte(`{"owner":"x","labels":{"protects":"y"}}`), client.WithEphemeral(), client.WithSequential())
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	held, began := entry(), time.Now()
	deadline := time.Now().Add(10 * time.Second)
	for {
		_, by, _ := reportOf(t, dir)
		if by["hold time"].State == stateWarn && time.Since(began) > 1500*time.Millisecond {
			break
		}
		must(t, "set", dir, "x") // so that the cluster's time is known
		if time.Now().After(deadline) {
			t.Fatalf("no warning: %+v", by["hold time"])
		}
	}
	must(t, "set", dir, "x")
	if err := c.Delete(ctx, held.Path, client.AnyVersion); err != nil {
		t.Fatal(err)
	}
	if next := entry(); c.Delete(ctx, next.Path, client.AnyVersion) != nil { // at once, so that the time is known
		t.Fatal("delete")
	}
	if _, err := c.Create(ctx, dir+"/after", nil); err != nil {
		t.Fatal(err)
	}
	doc, by, _ := reportOf(t, dir)
	if doc.Holds != 2 || doc.Timed != 2 || doc.HoldP99Ms < 1000 || doc.HoldP99Ms > 30_000 || doc.TimeoutMs != 2000 || by["hold time"].State != stateWarn {
		t.Errorf("%+v", doc)
	}
	on(t, "", "doctor", "lock", dir+"/nothing").want(t, exitNotFound, "", "~no lock ")
}

// Changes are played again as they were: who is first holds, the next one from
// when the first has gone; who leaves from the middle has held nothing.
func TestHoldsArePlayedAgain(t *testing.T) {
	const lock = "/l"
	node := func(n int) string { return fmt.Sprintf("/l/_c_%d-lock-%010d", n, n) }
	created := func(z client.Zxid, n int, ms int64) client.Event {
		return client.Event{Type: client.EventCreated, Zxid: z, Path: node(n), Stat: znode.Stat{Czxid: z, Ctime: ms}}
	}
	deleted := func(z client.Zxid, n int) client.Event {
		return client.Event{Type: client.EventDeleted, Zxid: z, Path: node(n)}
	}
	h := &lockHistory{since: 1, changes: []client.Event{
		created(10, 5, 10_000),
		deleted(11, 4), // was there before; 5 holds from here on
		created(12, 6, 10_100),
		created(13, 7, 12_000),
		deleted(14, 6), // gives up
		created(20, 8, 20_000),
		deleted(21, 5),
		created(22, 9, 20_100), // 7 holds
		deleted(30, 7),         // when is not known
	}}
	for i := range h.changes {
		h.clock.note(&h.changes[i])
	}
	h.clock.points = append(h.clock.points, clockPoint{40, 90_000})
	h.clock.sort()
	s := h.holds(lock, []string{node(8), node(9)}, time.UnixMilli(100_000))
	if s.seen != 2 || len(s.timed) != 1 || s.timed[0] != 10*time.Second {
		t.Errorf("%+v", s)
	}
	if s = (&lockHistory{changes: []client.Event{created(10, 5, 0), deleted(11, 5)}}).holds(lock, []string{node(1)}, time.Now()); s.seen != 0 {
		t.Errorf("who was never first has held nothing: %+v", s)
	}
	for n, want := range map[int]time.Duration{1: 1, 50: 50, 99: 99, 100: 99, 101: 100, 200: 198} {
		var s holdStats
		for i := range n {
			s.timed = append(s.timed, time.Duration(i+1))
		}
		if got := s.p99(); got != want {
			t.Errorf("p99 of %d is the %d.", n, got)
		}
	}
}
