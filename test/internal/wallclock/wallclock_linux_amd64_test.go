package wallclock

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// clockProcess is this test program again, as a process that tells the time.
type clockProcess struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

const env = "WALLCLOCK_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(env) != "" {
		tellTheTime()
		return
	}
	os.Exit(m.Run())
}

// tellTheTime answers each line with the wall clock and the monotonic time since
// the start, while other threads read the clock all the time.
func tellTheTime() {
	began := time.Now()
	for range 3 {
		go func() {
			for {
				_ = time.Now()
			}
		}()
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		now := time.Now()
		fmt.Println(now.Unix(), now.Sub(began).Nanoseconds())
	}
}

func startClock(t *testing.T) *clockProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &clockProcess{cmd, in, bufio.NewReader(out)}
}

// ask returns how far the process's wall clock is from ours, and its monotonic
// time.
func (p *clockProcess) ask(t *testing.T) (ahead, monotonic time.Duration) {
	t.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		t.Fatal(err)
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var wall, mono int64
	if _, err := fmt.Sscan(strings.TrimSpace(line), &wall, &mono); err != nil {
		t.Fatal(err)
	}
	return time.Duration(wall-time.Now().Unix()) * time.Second, time.Duration(mono)
}

func near(have, want time.Duration) bool {
	return have > want-20*time.Second && have < want+20*time.Second
}

func TestStepMovesTheWallClockOfOneProcessOnly(t *testing.T) {
	p, other := startClock(t), startClock(t)
	if ahead, _ := p.ask(t); !near(ahead, 0) {
		t.Fatalf("the clock is off by %v before anything was done", ahead)
	}
	c, err := Of(p.cmd.Process.Pid)
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, before := p.ask(t)
	for _, step := range []time.Duration{365 * 24 * time.Hour, -10 * time.Hour, 0} {
		if err := c.Step(step); err != nil {
			t.Fatal(err)
		}
		ahead, monotonic := p.ask(t)
		if !near(ahead, step) {
			t.Errorf("the clock is ahead by %v, want %v", ahead, step)
		}
		if monotonic < before || monotonic > before+time.Minute {
			t.Errorf("the monotonic clock went from %v to %v", before, monotonic)
		}
		before = monotonic
		if ahead, _ := other.ask(t); !near(ahead, 0) {
			t.Errorf("another process's clock is ahead by %v", ahead)
		}
	}
}

func TestProcessThatHasEndedHasNoClock(t *testing.T) {
	p := startClock(t)
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	if _, err := Of(p.cmd.Process.Pid); err == nil {
		t.Error("a process that has ended has a clock")
	}
}
