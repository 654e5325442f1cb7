package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/coordd/coord/client"
)

// Exit codes; lock has more of its own.
const (
	exitOK           = 0
	exitFailed       = 1
	exitUsage        = 2
	exitNotFound     = 3
	exitPrecondition = 4
	exitNotPermitted = 5
	exitUnreachable  = 6
	exitTimeout      = 7
	exitUnhealthy    = 8
	exitInterrupted  = 130
)

var (
	errInterrupted = errors.New("interrupted")
	errUnhealthy   = errors.New("unhealthy")
)

// usageError marks wrong use: exit code 2.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// exitError ends the program with a code and no words of its own.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// codedError ends the program with a code and a message.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// timeLimitError is the cause of a request's end at its time limit.
type timeLimitError struct{ limit time.Duration }

func (e *timeLimitError) Error() string { return fmt.Sprintf("no answer within %s", e.limit) }

// kinds maps errors to names for scripts and to exit codes; the first that
// matches counts.
var kinds = []struct {
	err  error
	name string
	code int
}{
	{errInterrupted, "Interrupted", exitInterrupted},
	{errUnhealthy, "Unhealthy", exitUnhealthy},
	{client.ErrNoNode, "NoNode", exitNotFound},
	{client.ErrNodeExists, "NodeExists", exitPrecondition},
	{client.ErrBadVersion, "BadVersion", exitPrecondition},
	{client.ErrNotEmpty, "NotEmpty", exitPrecondition},
	{client.ErrEphemeralParent, "EphemeralParent", exitPrecondition},
	{client.ErrNoAuth, "NoAuth", exitNotPermitted},
	{client.ErrAuthFailed, "AuthFailed", exitNotPermitted},
	{client.ErrBadPath, "BadPath", exitUsage},
	{client.ErrInvalidACL, "InvalidACL", exitUsage},
	{client.ErrBadArguments, "BadArguments", exitUsage},
	{client.ErrSessionExpired, "SessionExpired", exitFailed},
	{client.ErrUnavailable, "Unavailable", exitUnreachable},
	{context.DeadlineExceeded, "TimeLimit", exitTimeout},
	{client.ErrUnknownOutcome, "UnknownOutcome", exitFailed},
}

// classify returns an error's name and exit code.
func classify(err error) (name string, code int) {
	var coded *codedError
	switch {
	case errors.As(err, &coded):
		return "Failed", coded.code
	case errors.As(err, new(*usageError)):
		return "Usage", exitUsage
	case errors.As(err, new(*timeLimitError)):
		return "TimeLimit", exitTimeout
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.name, k.code
		}
	}
	return "Failed", exitFailed
}

// report prints err, if there is something to say, and returns the exit code.
func (e *env) report(err error) int {
	var silent exitError
	if err == nil {
		return exitOK
	}
	if errors.As(err, &silent) {
		return int(silent)
	}
	name, code := classify(err)
	if e.output == "json" || e.output == "ndjson" {
		e.reportJSON(err, name)
		return code
	}
	if !errors.Is(err, errUnhealthy) || err.Error() != errUnhealthy.Error() {
		fmt.Fprintf(e.stderr, "coordctl: %s\n", describe(err))
		if h := hint(err); h != "" && !e.quiet {
			fmt.Fprintf(e.stderr, "hint: %s\n", h)
		}
	}
	return code
}

// describe says what was tried when no server could be reached.
func describe(err error) string {
	var ce *client.Error
	if !errors.As(err, &ce) || len(ce.Tried) == 0 || ce.Node != "" {
		return err.Error()
	}
	s := fmt.Sprintf("cannot reach the cluster (%d endpoints tried)", len(ce.Tried))
	if len(ce.Tried) == 1 {
		s = "cannot reach the cluster (1 endpoint tried)"
	}
	for _, a := range ce.Tried {
		s += fmt.Sprintf("\n  %-20s %v", a.Endpoint, a.Err)
	}
	return s
}

func hint(err error) string {
	if _, code := classify(err); code == exitUnreachable {
		return "`coordd dev` starts a server here; set endpoints with -e, COORDCTL_ENDPOINTS or `coordctl context add`"
	}
	return ""
}

func (e *env) reportJSON(err error, name string) {
	body := map[string]any{"code": name, "message": describe(err)}
	var ce *client.Error
	if errors.As(err, &ce) {
		if ce.Path != "" {
			body["path"] = ce.Path
		}
		if errors.Is(err, client.ErrBadVersion) {
			body["have"], body["want"] = ce.Have, ce.Want
		}
	}
	if h := hint(err); h != "" {
		body["hint"] = h
	}
	_ = json.NewEncoder(e.stderr).Encode(map[string]any{"error": body})
}
