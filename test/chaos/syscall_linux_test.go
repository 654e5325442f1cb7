package chaos

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/internal/tied"
	"github.com/coordd/coord/test/internal/child"
)

// writeCalls are the system calls by which a server changes its disk, and how
// likely each is chosen. Sockets and the server's own messages are written by write,
// too; kills there do not count.
var writeCalls = []struct {
	name    string
	odds    int
	atStart bool // seldom at any other time
}{
	{"pwrite64", 5, false},
	{"fsync", 5, false},
	{"fdatasync", 3, false},
	{"write", 2, false},
	{"renameat", 4, false},
	{"unlinkat", 4, false},
	{"ftruncate", 1, true},
	{"fallocate", 1, true},
	{"mkdirat", 2, false},
}

// drawCall chooses one of writeCalls.
func (r *rig) drawCall() (name string, atStart bool) {
	total := 0
	for _, c := range writeCalls {
		total += c.odds
	}
	at := r.rnd.IntN(total)
	for _, c := range writeCalls {
		if at -= c.odds; at < 0 {
			return c.name, c.atStart
		}
	}
	panic("odds do not add up")
}

// TestKillAtSystemCalls kills a server at system calls that write, chosen at
// random, under load and in its start: the call is not done any more. However its
// files look then, it starts again by itself, comes back, and has what it said it
// has.
func TestKillAtSystemCalls(t *testing.T) {
	skipIfShort(t)
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is missing, run: make setup")
	}
	for _, c := range []struct {
		name    string
		servers int
		points  int
	}{
		{"OfThree", 3, *points},
		{"Alone", 1, *points / 4}, // nobody else knows what it forgets
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, seed.New(t), rigOptions{servers: c.servers, config: smallLogs})
			hit := map[string]int{}
			for done := 0; done < c.points && !t.Failed(); {
				l := r.startLoad(loadOptions{root: fmt.Sprintf("/calls-%d", done), clients: 4})
				for n := 0; n < sliceOfCalls && done < c.points && !t.Failed(); {
					if where := r.killAtCall(l); where != "" {
						hit[where]++
						n, done = n+1, done+1
					}
				}
				l.finish()
			}
			tellHits(t, hit, c.points)
		})
	}
}

// keptParts are what a server keeps on its disk, as fileIn names it. No hundred
// kills may leave one of them out.
var keptParts = []string{"DATA/log-", "DATA/snapshots", "DATA/stable.db", "DATA/votes"}

// tellHits prints where kills have hit.
func tellHits(t *testing.T, hit map[string]int, total int) {
	t.Helper()
	parts := map[string]int{}
	for _, where := range slices.Sorted(maps.Keys(hit)) {
		t.Logf("%3d x %s", hit[where], where)
		for _, part := range keptParts {
			if strings.Contains(where, part) {
				parts[part] += hit[where]
			}
		}
	}
	t.Logf("of %d: %v", total, parts)
	for _, part := range keptParts {
		if total >= 100 && parts[part] == 0 {
			t.Errorf("none of %d kills has hit a write to %s", total, part)
		}
	}
}

// sliceOfCalls is how many of these kills share a history.
const sliceOfCalls = 20

// callPatience is how long a call is waited for.
const callPatience = 3 * time.Second

// killAtCall kills a server at a call, of its start or some time later, and
// starts it again. It returns which call it was, "" if it never came, or was for no
// file.
func (r *rig) killAtCall(l *load) string {
	r.t.Helper()
	p := r.any()
	call, atStart := r.drawCall()
	trace := filepath.Join(r.dir, p.name+".strace")
	_ = os.Remove(trace)
	var came bool
	switch when := r.rnd.IntN(4); {
	case atStart || when == 0:
		came = p.killInStart(call, trace)
	case when == 1: // a little later in its start
		p.Kill()
		p.start()
		r.pause(200 * time.Millisecond)
		came = p.killRunning(call, 1, trace)
	default:
		r.pause(300 * time.Millisecond)
		came = p.killRunning(call, 1+r.rnd.IntN(2), trace)
	}
	p.Kill()
	where := ""
	if came {
		where = p.lastCall(trace, call)
	}
	r.tell("%s was killed by the call: %v %s", p.name, came, where)
	p.start()
	child.Poll(r.t, time.Minute, p.name+" is back", p.ready)
	l.progressOr(20, 3*time.Second)
	return where
}

// killInStart starts the server so that it is killed when one of its threads does
// the call for the first time.
func (p *node) killInStart(call, trace string) (came bool) {
	p.r.tell("%s: start, with a kill at the first %s", p.name, call)
	p.Kill()
	p.start("strace", "-D", "-f", "-qq", "-y", "--seccomp-bpf", "-o", trace,
		"-e", "trace="+call, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=1", call))
	return p.Ended(callPatience)
}

// killRunning kills the running server when one of its threads does the call for
// that time from now on. Counts are of threads; the kernel has no others.
func (p *node) killRunning(call string, when int, trace string) (came bool) {
	p.r.tell("%s: kill at %s number %d of a thread from now on", p.name, call, when)
	cmd := exec.Command("strace", "-f", "-qq", "-y", "-o", trace, "-p", strconv.Itoa(p.Pid()),
		"-e", "trace="+call, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", call, when))
	if err := tied.Start(cmd, syscall.SIGKILL); err != nil {
		p.r.t.Fatal(err)
	}
	came = p.Ended(callPatience)
	_ = cmd.Process.Signal(os.Interrupt) // it lets the server go, if that still runs
	_ = cmd.Wait()
	return came
}

// lastCall is the call that the trace ends with, and what it was for; "" if that
// was no file of the server's data.
func (p *node) lastCall(trace, name string) string {
	text, _ := os.ReadFile(trace)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range slices.Backward(lines) {
		if i := strings.Index(line, name+"("); i >= 0 {
			if file := p.fileIn(line[i:]); file != "" {
				return name + " of " + file
			}
			return ""
		}
	}
	return ""
}

// numbers tell files apart that are the same to us: snapshots, segments of the log.
var numbers = regexp.MustCompile(`[0-9a-f]{8,}|[0-9]+`)

// fileIn names the file of the server's data that the text of a call names, ""
// if it names none, as calls for sockets.
func (p *node) fileIn(call string) string {
	_, path, found := strings.Cut(call, p.dataDir)
	if !found {
		return ""
	}
	end := strings.IndexAny(path, `>"`)
	if end < 0 || end > 0 && path[0] != '/' { // another file beside the directory
		return ""
	}
	return "DATA" + numbers.ReplaceAllString(path[:end], "N")
}
