package tempserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stubborn is a program that hears no SIGTERM.
func stubborn(t *testing.T, stop []Force) *Process {
	t.Helper()
	p, err := Account{}.Start(Program{
		Path: "/bin/sh", Args: []string{"-c", `trap "" TERM; echo up >&2; while :; do sleep 0.05; done`},
		Dir: t.TempDir(), Orphaned: syscall.SIGKILL, Stop: stop,
	})
	if err != nil {
		t.Fatal(err)
	}
	up := func(context.Context) bool { return strings.Contains(p.log.String(), "up") }
	if err := p.WaitReady(t.Context(), up); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestStopRisesInForce(t *testing.T) {
	p := stubborn(t, []Force{{syscall.SIGTERM, 50 * time.Millisecond}, {syscall.SIGKILL, 10 * time.Second}})
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	select {
	case <-p.Done():
	default:
		t.Error("stopped, and it still runs")
	}
	if err := p.Stop(); err != nil {
		t.Errorf("once more: %v", err)
	}
}

func TestStopSaysWhenNothingHelps(t *testing.T) {
	p := stubborn(t, []Force{{syscall.SIGTERM, 50 * time.Millisecond}})
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), strconv.Itoa(p.Pid())) {
		t.Errorf("have %v, want an error that names the process", err)
	}
	p.stop = []Force{{syscall.SIGKILL, 10 * time.Second}}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

func TestWaitReadyQuotesTheLog(t *testing.T) {
	never := func(context.Context) bool { return false }
	p, err := Account{}.Start(Program{
		Path: "/bin/sh", Args: []string{"-c", "echo no such setting >&2; exit 3"}, Dir: t.TempDir(), Orphaned: syscall.SIGKILL,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.WaitReady(t.Context(), never); err == nil || !strings.Contains(err.Error(), "no such setting") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("have %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p = stubborn(t, []Force{{syscall.SIGKILL, 10 * time.Second}})
	if err := p.WaitReady(ctx, never); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "up") {
		t.Errorf("have %v", err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

func TestMissingProgramIsAnError(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := (Account{}).Start(Program{Path: missing, Dir: t.TempDir()}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("start: %v", err)
	}
	if err := (Account{}).Run(t.Context(), t.TempDir(), missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("run: %v", err)
	}
}

func TestRunQuotesWhatFailed(t *testing.T) {
	err := Account{}.Run(t.Context(), t.TempDir(), "/bin/sh", "-c", "echo out; echo err >&2; exit 4")
	if err == nil || !strings.Contains(err.Error(), "exit status 4: out\nerr") {
		t.Errorf("have %v", err)
	}
	if err := (Account{}).Run(t.Context(), t.TempDir(), "/bin/sh", "-c", "exit 0"); err != nil {
		t.Error(err)
	}
}

// A tool may have started others, which must not outlive it.
func TestRunEndsWithItsContextAndTakesChildrenAlong(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- Account{}.Run(ctx, dir, "/bin/sh", "-c", "sleep 600 & echo $! >pid.new; mv pid.new pid; wait")
	}()
	var pid int
	deadline := time.Now().Add(10 * time.Second)
	for pid == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the program did not start")
		}
		if text, err := os.ReadFile(filepath.Join(dir, "pid")); err == nil {
			pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		time.Sleep(2 * time.Millisecond)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("want an error")
	}
	for Running(pid) {
		if time.Now().After(deadline) {
			t.Fatalf("the child %d still runs", pid)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func TestPathTooLongForASocketIsRefused(t *testing.T) {
	parent := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := (Account{}).MakeDir(parent, "x-", "socket"); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("have %v", err)
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) != 0 {
		t.Errorf("%d entries left, %v", len(entries), err)
	}
}

func TestUnknownAccountsAreAnError(t *testing.T) {
	if os.Geteuid() != 0 {
		a, err := Unprivileged("no such account")
		if err != nil || a.credential != nil {
			t.Errorf("have %v, %v, want the caller's own account", a, err)
		}
		return
	}
	if _, err := Unprivileged("no such account", "nor this"); err == nil || !strings.Contains(err.Error(), "nor this") {
		t.Errorf("have %v", err)
	}
	a, err := Unprivileged("no such account", "nobody")
	if err != nil || a.credential == nil || a.credential.Uid == 0 {
		t.Errorf("have %v, %v, want the second one", a, err)
	}
}
