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

	"github.com/coordd/coord/internal/tied"
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
		return "", &codedError{exitNotExecutable, err}
	case strings.HasPrefix(argv[0], "-"):
		return "", &codedError{exitNoCommand, fmt.Errorf("%w\nhint: what stands behind PATH is the command; flags for coordctl go in front of PATH", err)}
	default:
		return "", &codedError{exitNoCommand, err}
	}
}

// run runs the command, or waits, until it ends or the lock is lost, and
// returns the exit code.
func (h *heldLock) run(ctx context.Context, program string, argv []string) (int, error) {
	if program == "" {
		return h.hold(ctx)
	}
	environment, err := h.environment()
	if err != nil {
		return 0, err
	}
	tty := h.ownTerminal()
	cmd := exec.Command(program, argv[1:]...)
	cmd.Args[0] = argv[0]
	cmd.Env = environment
	cmd.Stdin, cmd.Stdout, cmd.Stderr = h.stdin, h.stdout, h.stderr
	if tty != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Foreground: true, Ctty: tty.fd}
	}
	signals := make(chan os.Signal, 16) // more at once are dropped, as the kernel does
	signal.Notify(signals, append(unlessIgnored(forwarded...), syscall.SIGCHLD)...)
	defer signal.Stop(signals)
	if ctx.Err() != nil {
		return 0, errInterrupted
	}
	if !h.handle.Held() { // before the command could start
		h.sayLost()
		return exitLost, nil
	}
	exited, err := startTied(cmd)
	if err != nil {
		return 0, &codedError{exitNotExecutable, err}
	}
	defer tty.takeBack(cmd.Process.Pid)
	c := &lockedChild{heldLock: h, pid: cmd.Process.Pid, argv0: argv[0], environment: environment, exited: exited, tty: tty}
	return c.wait(signals), nil
}

// startTied starts cmd so that it ends with us, however that happens. The channel
// gets the result of its Wait.
func startTied(cmd *exec.Cmd) (<-chan exit, error) {
	if err := tied.Start(cmd, syscall.SIGKILL); err != nil {
		return nil, err
	}
	exited := make(chan exit, 1)
	go func() { exited <- exit{cmd.Wait()} }()
	return exited, nil
}

// hold keeps the lock without a command.
func (h *heldLock) hold(ctx context.Context) (int, error) {
	fmt.Fprintf(h.stderr, "coordctl: holding %s with token %s (%s, session %s) until Ctrl-C\n",
		h.path, h.handle.FencingToken(), h.handle.Node(), h.handle.Session().ID())
	select {
	case <-ctx.Done():
		return exitOK, nil
	case <-h.handle.Lost():
		h.sayLost()
		return exitLost, nil
	}
}

// sayLost says what was lost, whose error names the lock, and for how long it
// was held.
func (h *heldLock) sayLost() {
	h.warn("%v; it was held for %s", context.Cause(h.handle.Context()), ago(time.Since(h.since)))
}

// lockedChild is the running command, in a process group of its own.
type lockedChild struct {
	*heldLock
	pid         int
	argv0       string
	environment []string
	exited      <-chan exit
	tty         *terminal // nil: it has none
	lost        bool      // the lock
}

// wait passes signals on until the command has ended, and returns the exit code.
// When the lock is lost first, it does what --on-lost says.
func (c *lockedChild) wait(signals <-chan os.Signal) int {
	lost := c.handle.Lost()
	for {
		select {
		case e := <-c.exited:
			return c.ended(e)
		case s := <-signals:
			c.pass(s.(syscall.Signal))
		case <-lost:
			lost = nil
			if c.whenLost() {
				return exitLost
			}
		}
	}
}

// ended is the exit code of a command that has ended by itself.
func (c *lockedChild) ended(e exit) int {
	if !c.lost && !c.handle.Held() { // both at the same time
		c.sayLost()
		c.lost = true
	}
	if c.lost && c.options.onLost != "warn" {
		return exitLost
	}
	return e.code()
}

// whenLost does what --on-lost says, and returns whether the command has ended.
func (c *lockedChild) whenLost() (ended bool) {
	c.lost = true
	c.sayLost()
	if c.options.onLost == "kill" {
		c.end()
		return true
	}
	c.react()
	return false
}

// pass hands a signal on. That the command was stopped is none for it.
func (c *lockedChild) pass(s syscall.Signal) {
	switch {
	case s != syscall.SIGCHLD:
		c.signal(s)
	case c.tty != nil && isStopped(c.pid):
		c.suspend()
	}
}

// suspend does what a shell expects of a job whose command was stopped at the
// terminal: it stops as well. A lock that is lost meanwhile ends the command
// before it can go on.
func (c *lockedChild) suspend() {
	c.warn("%s is stopped; lock %s is lost unless it goes on within %s", c.argv0, c.path, ago(c.handle.Remaining()))
	c.tty.takeBack(c.pid)
	_ = syscall.Kill(0, syscall.SIGSTOP) // all of the job; returns when it goes on
	if !c.handle.Held() {
		return // Lost is closed
	}
	c.tty.give(c.pid)
	c.signal(syscall.SIGCONT)
}

// signal reaches the whole process group; one that has ended is left alone.
func (c *lockedChild) signal(s syscall.Signal) { _ = syscall.Kill(-c.pid, s) }

// end makes the command end within killAfter.
func (c *lockedChild) end() {
	start := time.Now()
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT)
	kill := time.NewTimer(c.killAfter)
	defer kill.Stop()
	select {
	case <-c.exited:
		c.signal(syscall.SIGKILL) // what it left behind in its group
		c.warn("sent SIGTERM to %s (process group %d); it ended after %s", c.argv0, c.pid, ago(time.Since(start)))
	case <-kill.C:
		c.signal(syscall.SIGKILL)
		<-c.exited
		c.warn("killed %s (process group %d) %s after SIGTERM", c.argv0, c.pid, ago(time.Since(start)))
	}
}

// exit is how a command ended: the error of its Wait.
type exit struct{ err error }

func (e exit) code() int {
	var failed *exec.ExitError
	switch {
	case e.err == nil:
		return exitOK
	case !errors.As(e.err, &failed):
		return exitCannotRun
	}
	if st, ok := failed.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		return 128 + int(st.Signal())
	}
	return failed.ExitCode()
}

// forwarded are the signals that people and supervisors send.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGWINCH,
}
