package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/lock"
)

// Exit codes of `coordctl lock` for its own failures, as env(1) and timeout(1)
// have them. Everything else is the command's.
const (
	exitLost          = 122
	exitNotAcquired   = 123
	exitCannotRun     = 125
	exitNotExecutable = 126
	exitNoCommand     = 127
)

// lossMargin is how long before the deadline the lock counts as lost, beside
// the time that the command has to end.
const lossMargin = 500 * time.Millisecond

type lockOptions struct {
	wait           time.Duration
	noWait         bool
	conflictCode   int
	holdAtLeast    time.Duration
	killAfter      time.Duration
	onLost         string
	sessionTimeout time.Duration
	owner          string
	labels         map[string]string
	shared         bool
	exclusive      bool
	slots          int
	lockDelay      time.Duration
}

func newLockCmd(e *env) *cobra.Command {
	o := lockOptions{conflictCode: exitNotAcquired, onLost: "kill", sessionTimeout: 30 * time.Second}
	cmd := &cobra.Command{
		Use:   "lock [flags] PATH [COMMAND [ARGUMENT...]]",
		Short: "Run a command while holding a lock",
		Long: `Wait for the lock at PATH, run the command, and release the lock.

The lock at PATH is a mutex, or with --shared and --exclusive the two sides of a
read-write lock, or with --slots N a semaphore that N hold at a time. A path is for
one kind: where another is in use the command is not run (exit code 125), with
--no-wait either, so a plain lock never comes in beside a reader or a slot. A change
of --slots is refused while the semaphore is in use.

Everything behind PATH is the command, as it stands: flags for coordctl go in
front of PATH. Standard input, output and error are the command's; signals are
passed on to it. Without a command the lock is held until Ctrl-C.

The command finds COORD_FENCING_TOKEN, COORD_LOCK_PATH, COORD_LOCK_NODE,
COORD_SESSION_ID and COORD_ENDPOINTS in its environment, and with --slots
COORD_LOCK_SLOT. Give the token to whatever it writes to, so that a newer holder's
writes are safe from it; with --slots each slot has tokens of its own.

The cluster keeps --wait as well: the place in line goes away then, even if coordctl
hangs. With --lock-delay nobody gets the lock for that long after a holder was lost,
so that its last requests come to their end; a clean release has no delay.

If the lock is lost, the command gets SIGTERM and, --kill-after later, SIGKILL:
early enough that it has ended before the next holder can start. What cannot be
helped is a pause of coordctl itself (SIGSTOP, a frozen machine): the token is for
that. The command ends with coordctl, too, where the system can arrange it (Linux).

Exit code: the command's, or 128+n for a signal; 122 the lock was lost, 123 not
acquired in time, 125 coordctl itself failed, 126 not executable, 127 not found.`,
		Example: `  coordctl lock /locks/nightly-report ./report.sh --full
  coordctl lock --wait 30s /locks/deploy make deploy
  coordctl lock --no-wait --conflict-exit-code 0 --hold-at-least 5m /cron/report ./report.sh
  coordctl lock --shared /locks/schema ./read-only-job
  coordctl lock --slots 4 /locks/encoder ffmpeg -i in.mov out.mp4`,
		Args:              belowRoot(cobra.MinimumNArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.checkKind(cmd.Flags()); err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return err
			}
			return runLock(cmd.Context(), e, &o, args[0], command(args[1:]))
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.DurationVar(&o.wait, "wait", 0, "give up after this long (0: never)")
	f.BoolVar(&o.noWait, "no-wait", false, "give up at once if another holds the lock")
	f.IntVar(&o.conflictCode, "conflict-exit-code", o.conflictCode, "exit code when the lock was not acquired")
	f.DurationVar(&o.holdAtLeast, "hold-at-least", 0, "keep the lock for at least this long, so that no host does the same again at once")
	f.BoolVar(&o.shared, "shared", false, "hold the read side of a read-write lock, with other readers")
	f.BoolVar(&o.exclusive, "exclusive", false, "hold the write side of a read-write lock, alone")
	f.IntVar(&o.slots, "slots", 0, "hold one of this many slots of a semaphore")
	o.addCommonFlags(f)
	return cmd
}

// addCommonFlags adds what `lock` and `elect` have in common.
func (o *lockOptions) addCommonFlags(f *pflag.FlagSet) {
	f.DurationVar(&o.killAfter, "kill-after", 0, "time between SIGTERM and SIGKILL when the lock is lost (default: a sixth of the session timeout, at most 5s)")
	f.StringVar(&o.onLost, "on-lost", o.onLost, "kill the command, warn, or exec:CMD")
	f.DurationVar(&o.sessionTimeout, "session-timeout", o.sessionTimeout, "how long the lock outlives a holder that vanished")
	f.DurationVar(&o.lockDelay, "lock-delay", 0, "keep the lock from others for this long after a lost holder")
	f.StringVar(&o.owner, "owner", "", "what others see as the holder (default: program@host:pid)")
	f.StringToStringVar(&o.labels, "label", nil, "key=value that others see")
}

// command drops a -- that someone put there by habit.
func command(args []string) []string {
	if len(args) > 0 && args[0] == "--" {
		return args[1:]
	}
	return args
}

func (o *lockOptions) check() error {
	if o.onLost != "kill" && o.onLost != "warn" && !strings.HasPrefix(o.onLost, "exec:") {
		return usagef("--on-lost: %q is none of kill, warn, exec:CMD", o.onLost)
	}
	if o.conflictCode < 0 || o.conflictCode > 255 {
		return usagef("--conflict-exit-code: %d is not from 0 to 255", o.conflictCode)
	}
	for _, t := range []struct {
		flag string
		d    time.Duration
	}{
		{"wait", o.wait}, {"kill-after", o.killAfter}, {"hold-at-least", o.holdAtLeast}, {"lock-delay", o.lockDelay},
	} {
		if t.d < 0 {
			return usagef("--%s: %s is below zero", t.flag, t.d)
		}
	}
	if o.sessionTimeout <= 0 {
		return usagef("--session-timeout: %s is not above zero", o.sessionTimeout)
	}
	return nil
}

// killTime is how long the command has between SIGTERM and SIGKILL, once the
// granted session timeout is known.
func (o *lockOptions) killTime(granted time.Duration) (time.Duration, error) {
	if o.killAfter == 0 {
		return min(5*time.Second, granted/6), nil
	}
	if most := granted/2 - lossMargin; o.killAfter > most {
		return 0, usagef("--kill-after %s is above %s: that and %s must be less than half of the session timeout %s, "+
			"or a single late answer would cost the lock", o.killAfter, most, lossMargin, granted)
	}
	return o.killAfter, nil
}

func runLock(ctx context.Context, e *env, o *lockOptions, path string, argv []string) error {
	return e.runHolding(ctx, o, path, argv, func(ctx context.Context, c *client.Client, opts []lock.Option) (*heldLock, error) {
		h, err := o.acquire(ctx, o.lock(c, path, opts))
		if err != nil {
			return nil, o.notAcquired(ctx, e, c, path, "lock "+path+": not acquired", err)
		}
		return &heldLock{handle: h, giveBack: h.Release}, nil
	})
}

// runHolding runs the command while what acquire returns is held.
func (e *env) runHolding(ctx context.Context, o *lockOptions, path string, argv []string,
	acquire func(context.Context, *client.Client, []lock.Option) (*heldLock, error),
) error {
	program, err := findProgram(argv)
	if err != nil {
		return err
	}
	c, err := e.dialWith(ctx, client.WithSessionTimeout(o.sessionTimeout))
	if err != nil {
		return err
	}
	defer closeQuietly(c) // a session that cannot be ended expires, and frees the lock then
	kill, err := o.killTime(c.Session().Timeout())
	if err != nil {
		return err
	}
	held, err := acquire(ctx, c, o.recipe(kill))
	if err != nil {
		return err
	}
	if err := besideSlots(ctx, c, path, held.handle); err != nil {
		if again := held.giveBack(ctx); again != nil {
			e.warn("%v", again)
		}
		return err
	}
	held.env, held.options, held.path, held.killAfter, held.since = e, o, path, kill, time.Now()
	code, err := held.run(ctx, program, argv)
	held.release(ctx)
	if err == nil && code != 0 {
		return exitError(code)
	}
	return err
}

// ownFailure gives what is wrong with `coordctl lock` itself the code 125, as
// the other codes are the command's.
func ownFailure(err error) error {
	var coded *codedError
	switch {
	case err == nil, errors.As(err, new(exitError)), errors.Is(err, errInterrupted), errors.As(err, new(*conflictError)):
		return err
	case errors.As(err, &coded) && coded.code >= exitLost:
		return err
	default:
		return &codedError{exitCannotRun, err}
	}
}

// heldLock is a lock in use by the command.
type heldLock struct {
	*env
	options   *lockOptions
	path      string
	handle    *lock.Handle
	giveBack  func(context.Context) error
	killAfter time.Duration
	since     time.Time
}

// environment is the command's.
func (h *heldLock) environment() ([]string, error) {
	t, err := h.resolve()
	if err != nil {
		return nil, err
	}
	own := os.Environ()
	if slot := h.handle.Slot(); slot >= 0 {
		own = append(own, "COORD_LOCK_SLOT="+strconv.Itoa(slot))
	}
	return append(own,
		fence.EnvToken+"="+h.handle.FencingToken().String(),
		"COORD_LOCK_PATH="+h.path,
		"COORD_LOCK_NODE="+h.handle.Node(),
		"COORD_SESSION_ID="+h.handle.Session().ID().String(),
		"COORD_ENDPOINTS="+strings.Join(t.Endpoints, ","),
	), nil
}

// release waits for --hold-at-least and gives the lock back. The command is done
// by now, and its exit code stands whatever becomes of this: a lock that could
// not be given back ends with the session.
func (h *heldLock) release(ctx context.Context) {
	if rest := h.options.holdAtLeast - time.Since(h.since); rest > 0 && h.handle.Held() {
		select {
		case <-time.After(rest):
		case <-ctx.Done():
		case <-h.handle.Lost():
		}
	}
	if !h.handle.Held() {
		return
	}
	if err := h.giveBack(ctx); err != nil {
		h.warn("%v", err)
	}
}
