package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// findProgram looks the command up before the lock is asked for, with the
// exit codes of env(1).
func findProgram(argv []string) (string, error) {
	if len(argv) == 0 {
		return "", nil
	}
	path, err := exec.LookPath(argv[0])
	switch {
	case err == nil || errors.Is(err, exec.ErrDot):
		return path, nil
	case errors.Is(err, os.ErrPermission):
		return "", &codedError{exitNotExecutable, fmt.Errorf("%s: %w", argv[0], err)}
	default:
		return "", &codedError{exitNoCommand, fmt.Errorf("%s: %w", argv[0], err)}
	}
}

// run runs the command, or waits, until it ends or the lock is lost, and
// returns the exit code.
func (h *heldLock) run(ctx context.Context, program string, argv []string) (int, error) {
	if program == "" {
		return h.hold(ctx)
	}
	cmd := exec.Command(program, argv[1:]...)
	cmd.Args[0] = argv[0]
	cmd.Env = h.environment()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = h.stdin, h.stdout, h.stderr
	cmd.SysProcAttr = childAttributes()
	signals := make(chan os.Signal, 16) // more at once are dropped, as the kernel does
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	if !h.handle.Held() {
		return exitLost, nil // lost before the command could start
	}
	exited, err := startTied(cmd)
	if err != nil {
		return 0, &codedError{exitNotExecutable, err}
	}
	child := &lockedChild{heldLock: h, pid: cmd.Process.Pid, argv0: argv[0], exited: exited}
	defer takeTerminal(child.pid)()
	return child.wait(signals)
}

// hold keeps the lock without a command.
func (h *heldLock) hold(ctx context.Context) (int, error) {
	h.printHandle(h.stderr)
	select {
	case <-ctx.Done():
		return exitOK, nil
	case <-h.handle.Lost():
		h.sayLost()
		return exitLost, nil
	}
}

func (h *heldLock) sayLost() {
	h.note("lock %s lost after %s: %v", h.path, ago(time.Since(h.since)), context.Cause(h.handle.Context()))
}

// lockedChild is the running command, in a process group of its own.
type lockedChild struct {
	*heldLock
	pid    int
	argv0  string
	exited <-chan error
}

// wait passes signals on until the command has ended. When the lock is lost
// first, it does what --on-lost says.
func (c *lockedChild) wait(signals <-chan os.Signal) (int, error) {
	lost := c.handle.Lost()
	wasLost := false
	for {
		select {
		case err := <-c.exited:
			code := exitCode(err)
			if wasLost && c.options.onLost != "warn" {
				code = exitLost
			}
			return code, nil
		case s := <-signals:
			c.signal(s.(syscall.Signal))
		case <-lost:
			lost, wasLost = nil, true
			c.sayLost()
			if c.options.onLost == "kill" {
				return exitLost, c.end()
			}
			c.react()
		}
	}
}

// signal reaches the whole process group; one that has ended is left alone.
func (c *lockedChild) signal(s syscall.Signal) { _ = syscall.Kill(-c.pid, s) }

// end makes the command end within killAfter.
func (c *lockedChild) end() error {
	start := time.Now()
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT)
	select {
	case <-c.exited:
		c.signal(syscall.SIGKILL) // what it left behind in its group
		c.note("sent SIGTERM to %s (process group %d); it ended after %s", c.argv0, c.pid, ago(time.Since(start)))
	case <-time.After(c.killAfter):
		c.signal(syscall.SIGKILL)
		<-c.exited
		c.note("killed %s (process group %d) %s after SIGTERM", c.argv0, c.pid, ago(time.Since(start)))
	}
	return nil
}

// react runs the command of --on-lost exec:CMD; the locked one goes on.
func (c *lockedChild) react() {
	line, ok := strings.CutPrefix(c.options.onLost, "exec:")
	if !ok {
		c.note("%s goes on without the lock (--on-lost warn)", c.argv0)
		return
	}
	reaction := exec.Command("/bin/sh", "-c", line)
	reaction.Env = append(c.environment(), fmt.Sprintf("COORD_CHILD_PID=%d", c.pid))
	reaction.Stdout, reaction.Stderr = c.stderr, c.stderr
	if err := reaction.Run(); err != nil {
		c.note("--on-lost %q: %v", line, err)
	}
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		if err != nil {
			return exitCannotRun
		}
		return exitOK
	}
	if st, ok := exit.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		return 128 + int(st.Signal())
	}
	return exit.ExitCode()
}

// forwarded are the signals that people and supervisors send.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGWINCH,
}
