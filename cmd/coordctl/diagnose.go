package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/zxid"
)

// quorumError says that servers answer, but cannot serve. It wraps the error
// that it explains.
type quorumError struct {
	err       error
	answering []string // names
	servers   int      // of the cluster
	silent    []string // a line for each server that is not known to be well
	zxid      zxid.ID  // the newest that an answering server has
}

func (e *quorumError) Unwrap() error { return e.err }

func (e *quorumError) needed() int { return e.servers/2 + 1 }

func (e *quorumError) Error() string {
	if len(e.answering) >= e.needed() {
		return fmt.Sprintf("no leader: %d of %d servers answer (%s), enough to choose one; writes and normal reads wait",
			len(e.answering), e.servers, strings.Join(e.answering, ", "))
	}
	verb := "answer"
	if len(e.answering) == 1 {
		verb = "answers"
	}
	head := fmt.Sprintf("no quorum: %d of %d servers %s (%s), %d are needed; writes and normal reads wait",
		len(e.answering), e.servers, verb, strings.Join(e.answering, ", "), e.needed())
	return strings.Join(append([]string{head}, e.silent...), "\n  ")
}

// Hint implements hinted.
func (e *quorumError) Hint() string {
	return fmt.Sprintf("--stale reads what %s has (up to zxid %s)", strings.Join(e.answering, " or "), e.zxid)
}

// notFormedError says for what a cluster waits that is not formed. It wraps the
// error that it explains.
type notFormedError struct {
	err     error
	waiting string
}

func (e *notFormedError) Error() string { return "the cluster is not formed yet: " + e.waiting }

func (e *notFormedError) Unwrap() []error { return []error{client.ErrNotFormed, e.err} }

// Hint implements hinted.
func (e *notFormedError) Hint() string {
	if strings.Contains(e.waiting, "cluster init") {
		return "`coordctl cluster init` forms the cluster, once"
	}
	return "`coordctl wait ready` waits until it is formed"
}

// diagnosisReserve is the part of a request's time limit that is kept for
// finding out why there was no answer.
func diagnosisReserve(limit time.Duration) time.Duration { return min(limit/4, 500*time.Millisecond) }

// diagnose finds out why a request was not served: that servers can be reached
// and cannot serve is a better answer than the passing of time.
func (e *env) diagnose(ctx context.Context, err error) error {
	if !undiagnosed(err) || ctx.Err() != nil {
		return err
	}
	all, askErr := e.askAll(ctx, diagnosisReserve(e.timeout))
	if askErr != nil {
		return err
	}
	return explain(err, all)
}

// explain makes err more precise with what the servers say about themselves.
func explain(err error, all []serverStatus) error {
	var newest *coordpb.StatusReply
	q := &quorumError{err: err}
	silent := map[string]error{} // endpoints
	for i := range all {
		s := &all[i]
		if s.err != nil {
			silent[s.endpoint] = reason(s.attempt().Err)
			continue
		}
		if s.reply.Waiting != "" {
			return &notFormedError{err, s.reply.Waiting}
		}
		if s.reply.MembersFromLeader {
			return err // there is a leader that answers: it is something else
		}
		q.answering = append(q.answering, s.reply.Server)
		q.zxid = max(q.zxid, zxid.ID(s.reply.Zxid))
		if newest == nil || s.reply.AppliedIndex > newest.AppliedIndex {
			newest = s.reply
		}
	}
	if newest == nil {
		return err
	}
	for _, m := range newest.Members {
		q.servers++
		if !slices.Contains(q.answering, m.Name) {
			q.silent = append(q.silent, silence(m, silent[m.GrpcAddress]))
			delete(silent, m.GrpcAddress)
		}
	}
	for _, endpoint := range slices.Sorted(maps.Keys(silent)) {
		q.silent = append(q.silent, fmt.Sprintf("endpoint %s: %v", endpoint, silent[endpoint]))
	}
	return q
}

// silence describes a server that gave no answer; why is what came back from its
// endpoint, nil if that was not asked.
func silence(m *coordpb.Member, why error) string {
	parts := []string{strings.TrimSpace(m.Name + " " + cmp.Or(m.GrpcAddress, m.PeerAddress))}
	if m.LastContactMs > 0 {
		parts = append(parts, fmt.Sprintf("last seen %s ago", ago(time.Duration(m.LastContactMs)*time.Millisecond)))
	}
	if why != nil {
		parts = append(parts, why.Error())
	}
	return strings.Join(parts, "  ")
}

// undiagnosed says whether err leaves open why nobody answered.
func undiagnosed(err error) bool {
	var ce *client.Error
	if errors.As(err, new(*quorumError)) || !errors.As(err, &ce) {
		return false
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return true // not everything was tried, perhaps
	}
	if !errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrUnknownOutcome) {
		return false
	}
	for _, a := range ce.Tried {
		if !errors.As(a.Err, new(*net.OpError)) && !errors.Is(a.Err, errStranger) {
			return true
		}
	}
	return len(ce.Tried) == 0
}
