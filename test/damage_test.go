package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"hash/crc64"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/internal/seed"
)

// A byte of a file of a stopped server is changed. When it starts, either it ends
// with a message that says which file, and what to do, which is then done; or it
// joins, and has the state of the others.
// cluster.TestDamagedByteIsFoundOrHarmless does the same to each file many times.
func TestDamagedServerSaysSoOrIsWell(t *testing.T) {
	skipIfShort(t)
	r := rand.New(rand.NewPCG(seed.New(t), 6))
	for _, store := range []string{"wal", "boltdb"} {
		t.Run(store, func(t *testing.T) {
			c := startProcesses(t, 3, "raft: {snapshot_log_size: 1MiB, log_store: "+store+"}\n")
			w := startCounters(t, c.endpoints(), 2)
			p := c.nodes[2]
			p.mustSnapshot()
			for _, pattern := range []string{"log-*/*.wal", "log-*/log.db", "log-*/wal-meta.db", "snapshots/*/state.bin", "snapshots/*/meta.json", "stable.db", "votes", "tail"} {
				w.waitProgress(20 * time.Second)
				p.kill()
				files, _ := filepath.Glob(filepath.Join(p.dataDir(), pattern))
				if len(files) == 0 {
					p.start()
					continue
				}
				flip(t, r, files[len(files)-1])
				c.startDamaged(p, pattern)
			}
			w.stop()
			c.sameDigests()
		})
	}
}

// flip changes a byte near the end of what is in use of a file.
func flip(t *testing.T, r *rand.Rand, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 8<<20))
	if err != nil {
		t.Fatal(err)
	}
	used := len(bytes.TrimRight(b, "\x00"))
	at := used - 1 - r.IntN(min(used, 4096))
	if _, err := f.WriteAt([]byte{b[at] ^ 0x41}, int64(at)); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: byte %d of %d", path, at, used)
}

func (c *processes) startDamaged(p *process, what string) {
	t := c.t
	t.Helper()
	before := logSize(p)
	p.start()
	poll(t, 60*time.Second, "ends or is ready with a damaged "+what, func() error {
		if !p.running() {
			return nil
		}
		return p.ready()
	})
	if p.running() {
		t.Logf("%s: harmless", what)
		return
	}
	text := logSince(p, before)
	if !strings.Contains(text, p.dataDir()) || !strings.Contains(text, "rejoin as new") {
		t.Errorf("%s: it does not say which file and what to do:\n%s", what, text)
	}
	if strings.Contains(text, "panic:") || strings.Contains(text, "goroutine ") {
		t.Errorf("%s: it panicked:\n%s", what, text)
	}
	t.Logf("%s: found: %s", what, text[max(0, len(text)-600):])
	c.rejoin(p)
}

// rejoin does what the message says.
func (c *processes) rejoin(p *process) {
	c.t.Helper()
	if err := os.RemoveAll(p.dataDir()); err != nil {
		c.t.Fatal(err)
	}
	p.start()
	c.waitReady(60 * time.Second)
	p.mustSnapshot()
}

// A server whose state has gone wrong without anybody noticing - here its snapshot
// was replaced by one of another state, with all checksums right - is found by the
// others, ends, stays down, and is well again after it was wiped.
func TestServerWithAnotherStateIsFound(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, smallLog)
	w := startCounters(t, c.endpoints(), 2)
	p := c.nodes[1]
	p.mustSnapshot()
	p.stop()
	forge(t, p.dataDir())
	before := logSize(p)
	p.start()
	poll(t, 90*time.Second, "the server ends", func() error {
		if p.running() {
			return errors.New("it runs")
		}
		return nil
	})
	if text := logSince(p, before); !strings.Contains(text, "the state of this server differs from that of the majority since an index") {
		t.Errorf("it does not say why:\n%s", text)
	}
	before = logSize(p)
	p.start()
	poll(t, 30*time.Second, "it ends again at once", func() error {
		if p.running() {
			return errors.New("it runs")
		}
		return nil
	})
	if text := logSince(p, before); !strings.Contains(text, "DIFFERS") {
		t.Errorf("the restart does not say why:\n%s", text)
	}
	w.waitProgress(20 * time.Second)
	c.rejoin(p)
	w.stop()
	c.sameDigests()
}

// forge changes the state in the snapshots of a data directory.
func forge(t *testing.T, dir string) {
	t.Helper()
	snaps, _ := filepath.Glob(filepath.Join(dir, "snapshots", "*", "state.bin"))
	if len(snaps) == 0 {
		t.Fatal("no snapshot")
	}
	for _, path := range snaps {
		forgeOne(t, path)
	}
}

func forgeOne(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := fsm.New(fsm.Options{})
	if err := m.Restore(bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	m.View(func(v *fsm.View) { v.Clock += 1e12 }) // nobody else has it
	var out bytes.Buffer
	if err := m.Snapshot().Encode(&out); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	describe(t, filepath.Dir(path), out.Bytes())
}

// describe makes the metadata of a snapshot fit its new content.
func describe(t *testing.T, dir string, state []byte) {
	t.Helper()
	path := filepath.Join(dir, "meta.json")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var meta map[string]any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&meta); err != nil {
		t.Fatal(err)
	}
	sum := crc64.New(crc64.MakeTable(crc64.ECMA))
	_, _ = sum.Write(state)
	meta["CRC"], meta["Size"] = sum.Sum(nil), len(state)
	if b, err = json.Marshal(meta); err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(dir, "meta.sum")) // as if it had been cut short before
}
