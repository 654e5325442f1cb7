package session

import (
	"cmp"
	"fmt"
	"iter"
	"strings"
)

// MaxRequests is how many request ids are remembered at a time. A full table
// refuses new ones: forgetting one before its end would let its request be done
// twice.
const MaxRequests = 100_000

// compareRequests orders by the end of validity, so that the first is the next
// to be forgotten.
func compareRequests(a, b *Request) int {
	return cmp.Or(cmp.Compare(a.End, b.End), strings.Compare(a.ID, b.ID))
}

// Request returns the remembered request with the id, or nil.
func (t *Table) Request(id string) *Request { return t.requestBy[id] }

// RequestCount is the number of request ids remembered.
func (t *Table) RequestCount() int { return t.requests.n }

// JudgeRequest says what to do with a request that came with an id, at cluster
// time now (ms): it returns what is remembered if the request was done, nil and
// no error if it is to be done and remembered, or the reason to refuse it
// ([ErrRequestReused], [ErrRequestTooOld], [ErrRequestsFull]). It is asked
// before the request is done; only one it lets through is ever remembered.
func (t *Table) JudgeRequest(id string, end int64, hash uint64, now int64) (*Request, error) {
	if r := t.requestBy[id]; r != nil {
		if r.Hash != hash {
			return nil, fmt.Errorf("request id %q: %w", id, ErrRequestReused)
		}
		return r, nil
	}
	if end < now {
		return nil, fmt.Errorf("request id %q: %w", id, ErrRequestTooOld)
	}
	if t.requests.n >= MaxRequests {
		return nil, fmt.Errorf("request id %q: %w: %d are in use", id, ErrRequestsFull, MaxRequests)
	}
	return nil, nil
}

// Remember keeps a request until its end; the table owns it from now on and it
// must not change. An id that is remembered already is [ErrRequestReused], a
// full table [ErrRequestsFull]; both change nothing.
func (t *Table) Remember(r *Request) error {
	if t.requestBy[r.ID] != nil {
		return fmt.Errorf("remember request id %q: %w", r.ID, ErrRequestReused)
	}
	if t.requests.n >= MaxRequests {
		return fmt.Errorf("remember request id %q: %w: %d are in use", r.ID, ErrRequestsFull, MaxRequests)
	}
	t.requests.insert(r, t.edition)
	t.requestBy[r.ID] = r
	t.sum.total += t.sum.request(r)
	return nil
}

// ForgetRequests forgets those whose end is before cluster time now (ms), and
// no other. It returns how many. It costs nothing when there are none.
func (t *Table) ForgetRequests(now int64) int {
	n := 0
	for r := t.requests.first(); r != nil && r.End < now; r = t.requests.first() {
		t.requests.remove(r, t.edition)
		delete(t.requestBy, r.ID)
		t.sum.total -= t.sum.request(r)
		n++
	}
	return n
}

// ForgetAllRequests forgets every request id: a restored backup knows nothing
// of what was done since it was made.
func (t *Table) ForgetAllRequests() {
	for r := range t.Requests() {
		t.sum.total -= t.sum.request(r)
	}
	t.requests.pages, t.requests.n = nil, 0
	clear(t.requestBy)
}

// Requests yields the remembered requests, the next to be forgotten first.
func (t *Table) Requests() iter.Seq[*Request] { return t.requests.from(nil) }
