package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A second `coordd dev` must not touch the directory of one that runs.
func TestTwoDevClustersCannotShareADirectory(t *testing.T) {
	dir := t.TempDir()
	_, release, err := devDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	pid := filepath.Join(dir, "n1", "coordd.pid")
	if err := os.MkdirAll(filepath.Dir(pid), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pid, []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	code := run(context.Background(), []string{"dev", "--data-dir", dir}, new(bytes.Buffer), &stderr)
	if code != exitFailed || !strings.Contains(stderr.String(), "another coordd dev runs in "+dir) {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
	if text, err := os.ReadFile(pid); err != nil || string(text) != "1\n" {
		t.Errorf("pid file: %q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "coordd.yaml")); err == nil {
		t.Error("the configuration was written")
	}
	release()
	_, release, err = devDirectory(dir)
	if err != nil {
		t.Fatalf("after the first one's end: %v", err)
	}
	release()
}

// Wrong use is exit code 2 and shows a way on.
func TestWrongUseOfCoordd(t *testing.T) {
	for line, want := range map[string]string{
		"bogus":           `unknown command "bogus" for "coordd"`,
		"dev foo":         "hint: coordd dev --help",
		"config chek":     "hint: coordd config --help",
		"config show a b": "accepts at most 1 arg(s)",
		"dev --nodes 2":   "--nodes: 2",
		"run --bogus":     "unknown flag",
		"completion bsh":  `unknown command "bsh" for "coordd completion"`,
	} {
		var stderr bytes.Buffer
		code := run(context.Background(), strings.Fields(line), new(bytes.Buffer), &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit code %d, stderr %q, want one with %q", line, code, stderr.String(), want)
		}
	}
}
