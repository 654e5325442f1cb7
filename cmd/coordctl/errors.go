package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/zkimport"
	"github.com/coordd/coord/recipes/barrier"
	"github.com/coordd/coord/recipes/counter"
	"github.com/coordd/coord/recipes/election"
	"github.com/coordd/coord/recipes/lock"
	"github.com/coordd/coord/recipes/queue"
	"github.com/coordd/coord/session"
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
	errNoLock      = errors.New("no lock")
	// errOtherNode is a condition on czxid or owner that did not hold.
	errOtherNode = errors.New("not the very znode asked for (czxid or owner differ)")
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

// Is makes the error match what the end of a context with a deadline matches.
func (e *timeLimitError) Is(target error) bool { return target == context.DeadlineExceeded }

// kinds maps errors to names for scripts and to exit codes; the first that
// matches counts.
var kinds = []struct {
	err  error
	name string
	code int
}{
	{errInterrupted, "Interrupted", exitInterrupted},
	{errUnhealthy, "Unhealthy", exitUnhealthy},
	{lock.ErrBusy, "Busy", exitNotAcquired},
	{lock.ErrOtherKind, "OtherKind", exitPrecondition},
	{lock.ErrLimitMismatch, "OtherLimit", exitPrecondition},
	{client.ErrNoNode, "NoNode", exitNotFound},
	{errNoLock, "NoLock", exitNotFound},
	{zkimport.ErrNoTop, "NoNode", exitNotFound},
	{zkimport.ErrUnreachable, "SourceUnreachable", exitUnreachable},
	{zkimport.ErrAuth, "SourceAuthFailed", exitNotPermitted},
	{zkimport.ErrRefused, "SourceRefused", exitFailed},
	{errRefused, "Refused", exitPrecondition},
	{election.ErrNoLeader, "NoLeader", exitNotFound},
	{counter.ErrOverflow, "Overflow", exitFailed},
	{counter.ErrContent, "Content", exitPrecondition},
	{barrier.ErrContent, "Content", exitPrecondition},
	{queue.ErrLost, "Lost", exitFailed},
	{queue.ErrKey, "BadArguments", exitUsage},
	{errOtherNode, "OtherNode", exitPrecondition},
	{session.ErrUnknown, "UnknownSession", exitNotFound},
	{client.ErrNodeExists, "NodeExists", exitPrecondition},
	{client.ErrBadVersion, "BadVersion", exitPrecondition},
	{client.ErrNotEmpty, "NotEmpty", exitPrecondition},
	{client.ErrEphemeralParent, "EphemeralParent", exitPrecondition},
	{client.ErrQuotaExceeded, "QuotaExceeded", exitPrecondition},
	{client.ErrIdentityInUse, "IdentityInUse", exitPrecondition},
	{client.ErrNoAuth, "NoAuth", exitNotPermitted},
	{client.ErrAuthFailed, "AuthFailed", exitNotPermitted},
	{client.ErrProtected, "Protected", exitNotPermitted},
	{client.ErrBadPath, "BadPath", exitUsage},
	{client.ErrInvalidACL, "InvalidACL", exitUsage},
	{client.ErrBadArguments, "BadArguments", exitUsage},
	{client.ErrTooLarge, "TooLarge", exitFailed},
	{client.ErrLimit, "Limit", exitFailed},
	{client.ErrSessionExpired, "SessionExpired", exitFailed},
	{client.ErrNotFormed, "NotFormed", exitUnreachable},
	{client.ErrUnavailable, "Unavailable", exitUnreachable},
	{context.DeadlineExceeded, "TimeLimit", exitTimeout},
	{client.ErrUnknownOutcome, "UnknownOutcome", exitFailed},
	{client.ErrOverloaded, "Overloaded", exitFailed},
	{client.ErrDiskFull, "DiskFull", exitFailed},
	{client.ErrWrongCluster, "WrongCluster", exitFailed},
	{client.ErrProtocol, "Protocol", exitFailed},
}

// classify returns an error's name and exit code.
func classify(err error) (name string, code int) {
	var quorum *quorumError
	var coded *codedError
	var conflict *conflictError
	switch {
	case errors.As(err, &conflict):
		name, _ := named(err)
		return name, conflict.code
	case errors.As(err, &coded):
		name, _ := classify(coded.err)
		return name, coded.code
	case errors.As(err, &quorum):
		return "NoQuorum", exitUnreachable
	case errors.As(err, new(*usageError)):
		return "Usage", exitUsage
	}
	return named(err)
}

func named(err error) (name string, code int) {
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
	switch {
	case e.isJSON():
		e.reportJSON(err, name)
	case errors.Is(err, errUnhealthy) && err.Error() == errUnhealthy.Error():
		// What was printed on standard output says why.
	default:
		message, next := describeAndHint(err)
		fmt.Fprintf(e.stderr, "coordctl: %s\n", message)
		if next != "" && !e.quiet {
			fmt.Fprintf(e.stderr, "hint: %s\n", next)
		}
	}
	return code
}

// describeAndHint says what happened and what to do next. An error may bring
// its own hint on a last line.
func describeAndHint(err error) (message, next string) {
	message, next, ok := strings.Cut(describe(err), "\nhint: ")
	if !ok {
		next = hint(err)
	}
	return message, next
}

// describe says what happened in words that need no knowledge of the client:
// which endpoints were tried, which versions were compared.
func describe(err error) string {
	var quorum *quorumError
	var unformed *notFormedError
	var ce *client.Error
	var restore *restoreFailed
	switch {
	case errors.As(err, &restore):
		return describe(restore.err) + "\n" + restore.fate()
	case errors.As(err, &unformed):
		return unformed.Error()
	case errors.As(err, &quorum) && errors.Is(err, client.ErrUnknownOutcome) && errors.As(err, &ce):
		return quorum.Error() + "\n" + operation(ce) + " may have been done or not"
	case errors.As(err, &quorum):
		return quorum.Error()
	case !errors.As(err, &ce):
		return err.Error()
	case errors.Is(err, client.ErrBadVersion):
		return fmt.Sprintf("%s: version is %d, you said %d", operation(ce), ce.Have, ce.Want)
	case errors.Is(err, client.ErrUnknownOutcome):
		return fmt.Sprintf("%s: no answer; it may have been done or not", operation(ce))
	case inTxn(ce):
		return fmt.Sprintf("%s: %v", operation(ce), ce.Err)
	case len(ce.Tried) == 0 || ce.Node != "":
		return err.Error()
	}
	head := "cannot reach the cluster"
	if errors.As(err, new(*timeLimitError)) && !errors.Is(err, client.ErrUnavailable) {
		head = err.Error()
	}
	s := fmt.Sprintf("%s (%s tried in %.2f s)", head, plural(len(ce.Tried), "endpoint"), took(ce.Tried).Seconds())
	for _, a := range ce.Tried {
		s += fmt.Sprintf("\n  %-20s %v", a.Endpoint, reason(a.Err))
	}
	return s
}

// operation names what was asked for, with its place in a transaction.
func operation(e *client.Error) string {
	s := e.Op
	if inTxn(e) {
		s = fmt.Sprintf("%s: operation %d on", e.Op, e.Index)
	}
	if e.Path != "" {
		s += " " + e.Path
	}
	return s
}

// inTxn says whether e is about one operation of several.
func inTxn(e *client.Error) bool { return e.Index >= 0 && e.Op == "txn" }

// took is the time from the begin of the first attempt to the end of the last.
func took(tried []client.Attempt) time.Duration {
	var first, last time.Time
	for _, a := range tried {
		if first.IsZero() || a.At.Before(first) {
			first = a.At
		}
		if end := a.At.Add(a.Took); end.After(last) {
			last = end
		}
	}
	return last.Sub(first)
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// hinted is an error that knows what to do next.
type hinted interface{ Hint() string }

func hint(err error) string {
	var h hinted
	var ce *client.Error
	switch {
	case errors.As(err, &h):
		return h.Hint()
	case errors.Is(err, client.ErrNotFormed):
		return "`coordctl cluster init` forms the cluster, once"
	case errors.Is(err, client.ErrBadVersion) && errors.As(err, &ce) && inTxn(ce):
		return "nothing was done; read it again and decide anew, or leave \"version\" out of the operation to do it at any version"
	case errors.Is(err, client.ErrBadVersion):
		return "read it again and decide anew, or leave --version out to overwrite whatever is there"
	case errors.Is(err, client.ErrNotEmpty):
		return "`coordctl deleteall` deletes a node with all below it"
	case metStranger(err):
		return "endpoints are the servers' ports for clients (listen.grpc, 7420 unless set), not those for HTTP or among themselves"
	case errors.Is(err, client.ErrUnavailable):
		return "`coordd dev` starts a server here; set endpoints with -e, COORDCTL_ENDPOINTS or `coordctl context add`"
	}
	return ""
}

// errorBody is an error as scripts see it.
type errorBody struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Path    string `json:"path,omitempty"`
	// Have and Want are the versions, of code BadVersion.
	Have *int64 `json:"have,omitempty"`
	Want *int64 `json:"want,omitempty"`
	// Index is the place of the failed operation in a transaction.
	Index *int `json:"index,omitempty"`
	// Outcome is notDone or maybeDone, of writes.
	Outcome string `json:"outcome,omitempty"`
	// Holder has the lock, of code Busy.
	Holder *holderBody `json:"holder,omitempty"`
	Hint   string      `json:"hint,omitempty"`
}

// holderBody is who has a lock.
type holderBody struct {
	Owner string `json:"owner"`
	Token string `json:"token"`
}

func (e *env) reportJSON(err error, name string) {
	body := errorBody{Code: name, Outcome: outcome(e.command, err)}
	var busy *lock.BusyError
	if errors.As(err, &busy) {
		body.Path = busy.Path
		body.Holder = &holderBody{busy.Holder.Owner, busy.Holder.Token.String()}
	}
	body.Message, body.Hint = describeAndHint(err)
	var ce *client.Error
	if errors.As(err, &ce) {
		body.Path = ce.Path
		if errors.Is(err, client.ErrBadVersion) {
			body.Have, body.Want = &ce.Have, &ce.Want
		}
		if inTxn(ce) {
			body.Index = &ce.Index
		}
	}
	_ = json.NewEncoder(e.stderr).Encode(map[string]any{"error": body})
}
