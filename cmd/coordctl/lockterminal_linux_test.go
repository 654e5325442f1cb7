package main

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// onTerminal starts coordctl as the session leader of a terminal, as a shell
// without job control would, and collects what the terminal shows.
func onTerminal(t *testing.T, args ...string) (p *process, person interface{ WriteString(string) (int, error) }, shown *lockedBuffer) {
	t.Helper()
	master, program := openTerminal(t)
	shown = &lockedBuffer{}
	p = start(t, sharedCluster(t), func(cmd *exec.Cmd) {
		cmd.Stdin, cmd.Stdout = program, program
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}, args...)
	program.Close()
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			if err != nil {
				return
			}
			_, _ = shown.Write(b[:n])
		}
	}()
	return p, master, shown
}

// The command has the terminal: it can read from it, although it is in a process
// group of its own.
func TestLockedCommandReadsFromTheTerminal(t *testing.T) {
	t.Parallel()
	p, person, shown := onTerminal(t, "lock", "/ltty-read", "sh", "-c", "echo ready; read x; echo got $x")
	eventually(t, "the command runs", func() bool { return strings.Contains(shown.String(), "ready") })
	if _, err := person.WriteString("line\n"); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	eventually(t, "the answer", func() bool { return strings.Contains(shown.String(), "got line") })
}

// Ctrl-C at the terminal ends the command, and the lock is given back.
func TestCtrlCAtTheTerminal(t *testing.T) {
	t.Parallel()
	fresh(t, "/ltty-int")
	p, person, shown := onTerminal(t, "lock", "/ltty-int", "sh", "-c", "echo ready; exec sleep 60")
	eventually(t, "the command runs", func() bool { return strings.Contains(shown.String(), "ready") })
	if _, err := person.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != 128+int(syscall.SIGINT) {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	on(t, "", "lock", "--no-wait", "/ltty-int", "true").want(t, 0, "", "")
}

// Ctrl-Z stops the job as a whole; it goes on when it is continued in time, with
// the lock still held.
func TestCtrlZStopsTheJob(t *testing.T) {
	t.Parallel()
	p, person, shown := onTerminal(t, "lock", "/ltty-stop", "sh", "-c", "echo ready; read x; echo got $x")
	eventually(t, "the command runs", func() bool { return strings.Contains(shown.String(), "ready") })
	if _, err := person.WriteString("\x1a"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "coordctl is stopped", func() bool { return state(t, p.cmd.Process.Pid) == "T" })
	eventually(t, "the note", func() bool {
		return strings.Contains(p.stderr.String(), "sh is stopped; lock /ltty-stop is lost unless it goes on within")
	})
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // the line may come before or after it goes on
	if _, err := person.WriteString("line\n"); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	eventually(t, "the answer", func() bool { return strings.Contains(shown.String(), "got line") })
}

// state is the letter that ps shows for a process.
func state(t *testing.T, pid int) string {
	t.Helper()
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	if err != nil || len(out) == 0 {
		return ""
	}
	return string(out[:1])
}
