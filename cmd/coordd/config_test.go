package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func load(t *testing.T, file string, env map[string]string, flags map[string]string) (*Config, []*setting, error) {
	t.Helper()
	src := source{env: func(k string) (string, bool) { v, ok := env[k]; return v, ok }, flags: flags}
	if file != "" {
		src.file, src.text = "coordd.yaml", []byte(file)
	}
	return loadConfig(src)
}

func TestFlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	file := "raft:\n  heartbeat: 300ms\n  election: 300ms\n  lease: 150ms\n"
	c, all, err := load(t, file,
		map[string]string{"COORDD_RAFT_ELECTION": "400ms", "COORDD_RAFT_LEASE": "120ms"},
		map[string]string{"raft-lease": "110ms"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range all {
		got[s.name] = s.String() + " from " + s.origin
	}
	for name, want := range map[string]string{
		"raft.heartbeat":      "300ms from coordd.yaml:2",
		"raft.election":       "400ms from environment COORDD_RAFT_ELECTION",
		"raft.lease":          "110ms from flag --raft-lease",
		"raft.write_deadline": "5s from default",
	} {
		if got[name] != want {
			t.Errorf("%s: %s, want %s", name, got[name], want)
		}
	}
	if c.Raft.Lease.String() != "110ms" {
		t.Errorf("lease = %s", c.Raft.Lease)
	}
}

func TestMistypedKeyIsAnErrorWithItsLine(t *testing.T) {
	_, _, err := load(t, "raft:\n  heartbeat: 300ms\n  electin: 1s\n", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "line 3") || !strings.Contains(err.Error(), `unknown key "electin"`) {
		t.Fatalf("err = %v, want one that names line 3 and electin", err)
	}
}

func TestBadValuesAreNamed(t *testing.T) {
	for file, want := range map[string]string{
		"limits: {node_size: 1MB}":         "1MB",
		"cluster: {bootstrap: maybe}":      "cluster.bootstrap",
		"session: {min: 1m}":               "session",
		"limits: {queue_size: 0}":          "limits.queue_size",
		"log: {level: loud}":               "log.level",
		"raft: {heartbeat: soon}":          "soon",
		"cluster: {name: a}\n---\nlog: {}": "one YAML document",
		"cluster: {name: a}\ncluster: {}":  "already defined",
		"raft: [1]":                        "line 1",
	} {
		if _, _, err := load(t, file, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: err = %v, want one that names %s", file, err, want)
		}
	}
	if _, _, err := load(t, "", map[string]string{"COORDD_LIMITS_CONNECTIONS": "many"}, nil); err == nil || !strings.Contains(err.Error(), "COORDD_LIMITS_CONNECTIONS") {
		t.Errorf("err = %v, want one that names the variable", err)
	}
}

func TestEverySettingHasItsOwnVariableAndFlag(t *testing.T) {
	c := defaultConfig()
	seen := map[string]string{}
	for _, s := range settingsOf(&c) {
		for _, name := range []string{s.env(), "--" + s.flag()} {
			if other, taken := seen[name]; taken {
				t.Errorf("%s stands for %s and %s", name, other, s.name)
			}
			seen[name] = s.name
		}
		if s.help == "" {
			t.Errorf("%s has no help", s.name)
		}
	}
}

func TestEverySettingCanBeWrittenAndReadAsText(t *testing.T) {
	c := defaultConfig()
	for _, s := range settingsOf(&c) {
		before := s.String()
		if err := s.set(before); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if s.String() != before {
			t.Errorf("%s: %s became %s", s.name, before, s.String())
		}
	}
}

func TestUnknownVariablesAreNamed(t *testing.T) {
	c := defaultConfig()
	got := unknownEnv(settingsOf(&c), []string{"COORDD_RAFT_ELECTIN=1s", "COORDD_RAFT_ELECTION=1s", "PATH=/bin"})
	if len(got) != 1 || got[0] != "COORDD_RAFT_ELECTIN" {
		t.Fatalf("unknown = %v", got)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{"0": 0, "100": 100, "4KiB": 4096, "1 MiB": 1 << 20, "2GiB": 2 << 30, "12B": 12} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%q = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "1MB", "9223372036854775807GiB", "1.5MiB"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
}

func TestSecretsAreNotShownAndHaveNoFlag(t *testing.T) {
	const hash = "super:c2VjcmV0"
	_, all, err := load(t, "auth: {super_digest: \""+hash+"\"}\n", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := showSettings(&out, all); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), hash) || !strings.Contains(out.String(), "(set)") {
		t.Errorf("shown:\n%s", out.String())
	}
	var f configFlags
	f.add(pflag.NewFlagSet("", pflag.ContinueOnError))
	if f.flags.Lookup("auth-super-digest") != nil {
		t.Error("a secret can be given as a flag, which every user of the machine can read")
	}
	if f.flags.Lookup("auth-superusers") == nil {
		t.Error("what is no secret has no flag")
	}
}

func TestDevShowsOurWarningsAndNotTheLibrarys(t *testing.T) {
	for line, want := range map[string]bool{
		"time=2026-01-01T00:00:00Z level=WARN msg=\"failed to contact\" node=n1":                false,
		"time=2026-01-01T00:00:00Z level=WARN msg=\"disk is low\" node=n1 event=disk_low":       true,
		"time=2026-01-01T00:00:00Z level=INFO msg=serving node=n1 event=serving":                false,
		"time=2026-01-01T00:00:00Z level=ERROR msg=\"disk failed\" node=n1 event=disk_failed x": true,
		"panic: runtime error": true,
	} {
		if got := concernsPeople(line); got != want {
			t.Errorf("%q: shown %v, want %v", line, got, want)
		}
	}
}
