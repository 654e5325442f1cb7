package child

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestProcessIsStartedAndEndedAgainAndAgain(t *testing.T) {
	var p Process
	if p.Kill(); p.Running() || !p.Ended(0) || p.State() != nil || p.Cmd() != nil {
		t.Error("a process that was not started is more than ended")
	}
	log := filepath.Join(t.TempDir(), "log")
	ends := 0
	p.OnEnd = func(how *os.ProcessState) {
		if ends++; how == nil || !p.Running() {
			t.Errorf("end %d is told late, or not how: %v", ends, how)
		}
	}
	for range 2 {
		if err := p.Start(exec.Command("sh", "-c", "echo here; exec sleep 60"), log, nil); err != nil {
			t.Fatal(err)
		}
		if !p.Running() || p.Ended(0) || p.State() != nil || p.Pid() == 0 {
			t.Error("it has ended at its start")
		}
		Poll(t, time.Minute, "output", func() error {
			if text, err := os.ReadFile(log); err != nil || len(text) != len("here\n")*(ends+1) {
				return errors.New("not yet: " + string(text))
			}
			return nil
		})
		p.Kill()
		if p.Signal(syscall.SIGCONT); p.Running() || p.State() == nil {
			t.Error("it runs on")
		}
	}
	if ends != 2 {
		t.Errorf("%d ends were told", ends)
	}
	if err := p.Start(exec.Command("/nowhere"), log, nil); err == nil || p.Running() {
		t.Errorf("what is not there was started: %v", err)
	}
}
