package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestBarrier(t *testing.T) {
	t.Parallel()
	fresh(t, "/bar")
	on(t, "", "barrier", "wait", "/bar/a").want(t, exitOK, "", "")
	on(t, "", "barrier", "raise", "/bar/a").want(t, exitOK, "", "")
	on(t, "", "--json", "barrier", "raise", "/bar/a").want(t, exitOK, "~\"raised\": true", "")
	on(t, "", "barrier", "wait", "--for", "50ms", "/bar/a").want(t, exitTimeout, "", "coordctl: barrier /bar/a: still raised after 50ms\n")
	w := start(t, sharedCluster(t), nil, "barrier", "wait", "/bar/a")
	eventually(t, "it waits", func() bool { return strings.Contains(must(t, "sessions"), "grpc") })
	on(t, "", "barrier", "lower", "/bar/a").want(t, exitOK, "", "")
	on(t, "", "barrier", "lower", "/bar/a").want(t, exitOK, "", "")
	if code := w.wait(t); code != exitOK {
		t.Errorf("exit code %d\n%s", code, w.stderr.String())
	}
	on(t, "", "barrier", "lower", "bar").want(t, exitUsage, "", "~must start with a slash")
	on(t, "", "barrier", "lift", "/bar").want(t, exitUsage, "", "~unknown command")
}

func TestCounter(t *testing.T) {
	t.Parallel()
	fresh(t, "/cnt")
	on(t, "", "counter", "get", "/cnt/a").want(t, exitOK, "0\n", "")
	on(t, "", "counter", "add", "/cnt/a", "9007199254740993").want(t, exitOK, "9007199254740993\n", "")
	on(t, "", "--json", "counter", "get", "/cnt/a").want(t, exitOK, "~\"value\": \"9007199254740993\"", "")
	on(t, "", "counter", "add", "--", "/cnt/a", "-9007199254740993").want(t, exitOK, "0\n", "")
	on(t, "", "counter", "add", "/cnt/a", "1.5").want(t, exitUsage, "", "~is not a whole number")
	var wg sync.WaitGroup
	seen := make(chan int, 5)
	for range 5 {
		wg.Go(func() {
			n, err := strconv.Atoi(strings.TrimSpace(on(t, "", "counter", "add", "/cnt/a").stdout))
			if err == nil {
				seen <- n
			}
		})
	}
	wg.Wait()
	close(seen)
	sum := 0
	for n := range seen {
		sum += n
	}
	if sum != 1+2+3+4+5 {
		t.Errorf("the numbers add up to %d", sum)
	}
	must(t, "set", "/cnt/a", "many")
	on(t, "", "counter", "add", "/cnt/a").want(t, exitPrecondition, "", "~/cnt/a")
	on(t, "", "counter", "get", "/cnt/a").want(t, exitPrecondition, "", "~/cnt/a")
	must(t, "set", "/cnt/a", "9223372036854775807")
	on(t, "", "counter", "add", "/cnt/a").want(t, exitFailed, "", "~does not fit")
}

// The page on guarantees is printed as it is, and found by words.
func TestGuaranteesArePrinted(t *testing.T) {
	r := ctl(t, "", "guarantees", "--json")
	var list struct{ Items []guarantee }
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil || len(list.Items) < 40 {
		t.Fatalf("%d rows, %v", len(list.Items), err)
	}
	for _, g := range list.Items {
		if g.Section == "" || g.Promise == "" || len(g.ShownBy) == 0 || strings.ContainsAny(g.Promise, "|`*") {
			t.Errorf("%+v", g)
		}
	}
	ctl(t, "", "guarantees", "fsync-nothing-of-it").want(t, exitNotFound, "", "~no promise has the word")
	few := ctl(t, "", "guarantees", "TOKEN")
	all := ctl(t, "", "guarantees")
	if few.code != exitOK || len(few.stdout) == 0 || len(few.stdout) >= len(all.stdout) {
		t.Errorf("exit code %d, %d of %d bytes", few.code, len(few.stdout), len(all.stdout))
	}
	for line := range strings.Lines(all.stdout) {
		if len(line) > guaranteeWidth+60 {
			t.Errorf("a line of %d: %s", len(line), line)
		}
	}
}

// The line is kept at its length, and each release wakes the one whose turn it is.
func TestBenchOfHandovers(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, 1)
	r := ctl(t, "", "-e", c.Target(), "bench", "lock", "--waiters", "3,40", "--clients", "2", "--duration", "300ms", "-o", "json")
	var points []benchHandover
	for line := range strings.Lines(r.stdout) {
		var p benchHandover
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		points = append(points, p)
	}
	if r.code != exitOK || len(points) != 2 || points[1].Waiters != 40 {
		t.Fatalf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	for _, p := range points {
		if p.Releases == 0 || p.P50Ms <= 0 || p.WakeUps < 1 || p.WakeUps > 2 {
			t.Errorf("%+v", p)
		}
	}
	ctl(t, "", "-e", c.Target(), "ls", "/").want(t, exitOK, "zookeeper\n", "")
	ctl(t, "", "-e", c.Target(), "bench", "set", "--waiters", "3").want(t, exitUsage, "", "~--waiters is for bench lock")
	ctl(t, "", "-e", c.Target(), "bench", "lock", "--waiters", "0").want(t, exitUsage, "", "~each must be from 1")
}
