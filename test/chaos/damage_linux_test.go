package chaos

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// damage kills a server and damages one of its files: some bits flip, or its end
// is not what was written. It must not matter, or the server must refuse to start
// and say why; then it is wiped and comes back as new. As its memory is
// lost with that, all others must be whole.
func (f *faults) damage() {
	f.calm.Lock() // the network is whole
	defer f.calm.Unlock()
	f.r.startAll()
	f.r.waitReady(2 * time.Minute)
	p := f.node()
	p.Kill()
	what, err := f.damageFile(p)
	if err != nil {
		f.r.t.Errorf("damage a file of %s: %v", p.name, err)
		return
	}
	f.r.tell("%s: damaged: %s", p.name, what)
	from := p.logSize()
	p.start()
	for deadline := time.Now().Add(time.Minute); p.Running() && p.ready() != nil && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	if !p.Running() {
		f.refused(p, what, from)
	}
	f.r.waitReady(2 * time.Minute)
}

// refused checks what a server has said about its damage, and makes it new. If it
// has not said enough, its files are kept.
func (f *faults) refused(p *node, what string, from int64) {
	said := p.logSince(from)
	f.r.tell("%s: refuses to start: %s", p.name, lastLine(said))
	if line := lastLine(said); !strings.Contains(line, p.dataDir) || !strings.Contains(line, "rejoin as new") {
		kept := filepath.Join(f.r.dir, fmt.Sprintf("%s-damaged-%d", p.name, from))
		f.r.t.Errorf("%s has ended after this damage: %s; but does not say which file and what to do:\n%s\nits files are in %s: %v",
			p.name, what, said, kept, os.CopyFS(kept, os.DirFS(p.dataDir)))
	}
	if err := p.wipe(); err != nil {
		f.r.t.Error(err)
	}
	p.start()
}

// damageFile changes a file of the server's, chosen at random.
func (f *faults) damageFile(p *node) (what string, err error) {
	var files []string
	err = filepath.WalkDir(p.dataDir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || e.Name() == "RESERVE" || e.Name() == "LOCK" {
			return err
		}
		files = append(files, path)
		return nil
	})
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", errors.New("it has none")
	}
	path := files[f.rnd.IntN(len(files))]
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	used := len(strings.TrimRight(string(content), "\x00")) // segments of the log are made with room
	name, _ := filepath.Rel(p.dataDir, path)
	if used == 0 {
		return "nothing, " + name + " is empty", nil
	}
	switch f.rnd.IntN(3) {
	case 0:
		what = fmt.Sprintf("bits flipped in %s, of %d bytes:", name, used)
		for range 1 + f.rnd.IntN(4) {
			at, bit := f.rnd.IntN(used), f.rnd.IntN(8)
			content[at] ^= 1 << bit
			what += fmt.Sprintf(" %d of byte %d", bit, at)
		}
	case 1:
		torn := 1 + f.rnd.IntN(min(used, 4096))
		clear(content[used-torn : used])
		what = fmt.Sprintf("the last %d of %d bytes of %s are zero", torn, used, name)
	default:
		torn := 1 + f.rnd.IntN(min(used, 4096))
		content = content[:used-torn]
		what = fmt.Sprintf("%s ends after %d of %d bytes", name, used-torn, used)
	}
	return what, os.WriteFile(path, content, 0o600)
}

func (p *node) logSize() int64 {
	info, err := os.Stat(p.log())
	if err != nil {
		return 0
	}
	return info.Size()
}

// logSince is what the server has said behind that place of its log.
func (p *node) logSince(from int64) string {
	text, _ := os.ReadFile(p.log())
	return string(text[min(from, int64(len(text))):])
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
