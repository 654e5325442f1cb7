package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

// Labels by which a holder declares what the cluster cannot see.
const (
	labelProtects   = "protects"
	labelFenced     = "fenced"
	labelToken      = "token"
	labelIdempotent = "idempotent"
)

func newDoctorLockCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "lock PATH",
		Short: "Ask a lock the questions of the production check list",
		Long: `Ask the lock at PATH the questions that matter when something goes wrong, and
answer them from live data, the changes that the servers still know, and what its
holders declare of themselves in labels:

  protects=NAME     the resource that the lock protects
  fenced=HOW        how the resource refuses a stale writer: sqlfence, httpfence, a
                    conditional write, ...; none says that it does not
  token=checked     the resource compares fencing tokens
  idempotent=HOW    what makes a repeat of the work harmless; none if nothing does

A holder declares them with 'coordctl lock --label NAME=VALUE', or with lock.Labels.
Ask while the lock is held: what a holder has declared goes with it. How long it was
held before is known only roughly: a deletion has no time of its own, so it is taken
from the changes around it, and left open where those are far apart.

Exit code: 0 all is well, 8 something is to be looked at, 3 there is no such lock.`,
		Example:           "  coordctl doctor lock /locks/nightly-report",
		Args:              withPath(cobra.ExactArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return as("doctor lock", e.doctorLock(cmd.Context(), args[0]))
		},
	}
}

// finding is one line of the report.
type finding struct {
	Question string `json:"question"`
	State    string `json:"state"` // ok or warn
	Answer   string `json:"answer"`
}

// lockReport is the report as scripts see it.
type lockReport struct {
	Path     string    `json:"path"`
	Findings []finding `json:"findings"`
	// HoldP99Ms is -1 when no hold could be timed.
	HoldP99Ms int64 `json:"holdP99Ms"`
	Holds     int   `json:"holds"`      // that were given back, as far as is known
	Timed     int   `json:"holdsTimed"` // of them
	TimeoutMs int64 `json:"timeoutMs"`  // of the holder's session; -1 unknown
}

// checkup is what the report is made of.
type checkup struct {
	item    *lockItem
	history *lockHistory
	holds   holdStats
	labels  map[string]string
	timeout time.Duration // 0 unknown
	token   string        // state of the holder's
}

func (e *env) doctorLock(ctx context.Context, p string) error {
	sessions := e.sessionsByID(ctx)
	var c checkup
	err := e.withMany(ctx, func(ctx context.Context, cl *client.Client, answered func()) error {
		info, err := lock.Inspect(ctx, cl, p)
		if err != nil {
			return err
		}
		answered()
		c.item = newLockItem(&info, sessions)
		if len(info.Holders) > 0 {
			if c.token, _, err = stateOf(ctx, cl, &info, info.Holders[0].Token); err != nil {
				return err
			}
			answered()
		}
		c.history, err = readHistory(ctx, cl, p, answered)
		return err
	})
	if err != nil {
		return err
	}
	var present []string
	for _, parties := range [][]party{c.item.Holders, c.item.Waiters} {
		for i := range parties {
			present = append(present, parties[i].Node)
		}
	}
	c.holds = c.history.holds(p, present, time.Now())
	if len(present) == 0 && c.holds.seen == 0 {
		return fmt.Errorf("%w %s: nobody holds it or waits for it, and the servers know of nobody who has held it", errNoLock, p)
	}
	c.who(sessions)
	r := c.report()
	err = e.object("LockReport", r, func(w io.Writer) error {
		for _, f := range r.Findings {
			if _, err := fmt.Fprintf(w, "%-4s  %-15s  %s\n", strings.ToUpper(f.State), f.Question, oneLine(f.Answer)); err != nil {
				return err
			}
		}
		return nil
	})
	for _, f := range r.Findings {
		if err == nil && f.State == stateWarn {
			return exitError(exitUnhealthy)
		}
	}
	return err
}

// who finds labels and session timeout: of the holder, or of who was the last if
// its session lives. Labels are not kept for longer than the znode.
func (c *checkup) who(sessions map[string]*sessionItem) {
	id := ""
	if c.holds.session != 0 {
		id = c.holds.session.String()
	}
	if h := c.item.Holder; h != nil {
		c.labels, id = h.Labels, h.Session
	}
	if s := sessions[id]; s != nil {
		c.timeout = time.Duration(s.TimeoutMs) * time.Millisecond
	}
}

// States of a finding.
const (
	stateOK   = "ok"
	stateWarn = "warn"
)

func (c *checkup) report() *lockReport {
	r := &lockReport{Path: c.item.Path, HoldP99Ms: -1, Holds: c.holds.seen, Timed: len(c.holds.timed), TimeoutMs: -1}
	if r.Timed > 0 {
		r.HoldP99Ms = c.holds.p99().Milliseconds()
	}
	if c.timeout > 0 {
		r.TimeoutMs = c.timeout.Milliseconds()
	}
	for _, ask := range []struct {
		question string
		answer   func() (ok bool, answer string)
	}{
		{"protects", c.protects},
		{"hold time", c.holdTime},
		{"stale writers", c.staleWriters},
		{"token", c.tokens},
		{"partition", c.partition},
		{"idempotency", c.idempotency},
	} {
		ok, answer := ask.answer()
		r.Findings = append(r.Findings, finding{ask.question, map[bool]string{true: stateOK, false: stateWarn}[ok], answer})
	}
	return r
}

func (c *checkup) protects() (bool, string) {
	if what := c.labels[labelProtects]; what != "" {
		return true, what
	}
	return false, "nothing is declared (label " + labelProtects + "=NAME): nobody can tell what a loss would endanger"
}

// holdTime compares how long the lock is held with the session's timeout: a hold
// that takes as long may outlive it.
func (c *checkup) holdTime() (bool, string) {
	current := time.Duration(0)
	if h := c.item.Holder; h != nil && h.Liveness != "gone" {
		current = h.age
	}
	s, worst := c.holdText(current)
	switch {
	case c.timeout == 0:
		return len(c.holds.timed) > 0 || current > 0, s + "; the session timeout is not known"
	case worst > c.timeout/2:
		return false, fmt.Sprintf("%s, above half of the session timeout %s: the work may outlive the lock", s, c.timeout)
	case worst == 0:
		return false, fmt.Sprintf("%s; session timeout %s", s, c.timeout)
	default:
		return true, fmt.Sprintf("%s, session timeout %s", s, c.timeout)
	}
}

// holdText says how long the lock is held, as far as is known.
func (c *checkup) holdText(current time.Duration) (string, time.Duration) {
	var s string
	switch {
	case len(c.holds.timed) > 0:
		s = fmt.Sprintf("p99 %s of %s", ago(c.holds.p99()), plural(len(c.holds.timed), "hold"))
		if more := c.holds.seen - len(c.holds.timed); more > 0 {
			s += fmt.Sprintf(" (%d more have no known times)", more)
		}
	case c.history.since == 0:
		s = "nothing is known: the servers have no changes any more"
	case c.holds.seen > 0:
		s = fmt.Sprintf("none of %s has a known time", plural(c.holds.seen, "hold"))
	default:
		s = "no hold has ended in the changes that are still known"
	}
	if current > 0 {
		s += fmt.Sprintf(", held now for %s", ago(current))
	}
	return s, max(c.holds.p99(), current)
}

func (c *checkup) staleWriters() (bool, string) {
	switch how := c.labels[labelFenced]; how {
	case "":
		return false, "not declared (label " + labelFenced + "=HOW): a paused holder may write after the next one"
	case "none", "no":
		return false, "declared to be let in: a paused holder may write after the next one"
	default:
		return true, "refused by the resource, by " + how + " (declared)"
	}
}

func (c *checkup) tokens() (bool, string) {
	s := "nobody holds the lock"
	if h := c.item.Holder; h != nil {
		s = fmt.Sprintf("%s of %s is %s", dash(h.Token), h.name(), c.token)
	}
	if c.labels[labelToken] != "checked" {
		return false, s + "; that a resource compares it is not declared (label " + labelToken + "=checked)"
	}
	return c.item.Holder == nil || c.token == tokenValid, s + "; the resource compares it (declared)"
}

// partition says what happens to a holder that is cut off.
func (c *checkup) partition() (bool, string) {
	h := c.item.Holder
	switch {
	case h != nil && h.Liveness == "gone":
		return true, "the holder is lost; its lock-delay keeps the lock for " + ago(max(0, h.lingers)) + " more"
	case h != nil && (h.Client == string(lock.PatternKazoo) || h.Client == string(lock.PatternPlain)):
		return false, "the holder is a ZooKeeper client: whether it stops by itself when it is cut off is its own affair"
	case c.timeout == 0:
		return true, "a holder that is cut off stops by its own clock before its session ends; then the next one gets the lock"
	default:
		return true, fmt.Sprintf("a holder that is cut off stops by its own clock before %s are over; the next one gets the lock soon after", c.timeout)
	}
}

func (c *checkup) idempotency() (bool, string) {
	switch how := c.labels[labelIdempotent]; how {
	case "":
		return false, "not declared (label " + labelIdempotent + "=HOW): work that is begun again may be done twice"
	case "none", "no":
		return false, "declared to be missing: work that is begun again is done twice"
	default:
		return true, "a repeat is harmless, by " + how + " (declared)"
	}
}
