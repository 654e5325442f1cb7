package httpfence

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/coordd/coord/fence"
)

// Types of problem documents. They are names, not addresses.
const (
	typeStale   = "urn:coord:fence:stale"
	typeMissing = "urn:coord:fence:missing"
	typeInvalid = "urn:coord:fence:invalid"
	typeWaiting = "urn:coord:fence:waiting"
	typeStore   = "urn:coord:fence:store"
)

const problemType = "application/problem+json"

// problem is a problem document of RFC 9457. Tokens are text: not every reader of
// JSON keeps 64 bits.
type problem struct {
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail,omitempty"`
	Resource string `json:"resource,omitempty"`
	Lock     string `json:"lock,omitempty"`
	Got      string `json:"got,omitempty"`
	Seen     string `json:"seen,omitempty"`
}

func writeProblem(w http.ResponseWriter, p problem) {
	body, err := json.Marshal(p)
	if err != nil { // strings and a number: it does not fail
		body = nil
	}
	h := w.Header()
	h.Set("Content-Type", problemType)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // the connection is the reader's
}

// maxProblemBytes bounds what is read of a refusal.
const maxProblemBytes = 64 << 10

// ErrRefused is returned by CheckResponse when a service that uses Require has
// refused a request for another reason than a stale token; the message says which.
var ErrRefused = errors.New("httpfence: refused")

// CheckResponse returns nil for a response that no [Require] has refused, whatever
// its status, and leaves its body unread. Otherwise it reads and closes the body
// and returns a *fence.StaleError (the request was not served: a newer holder has
// been there, stop), or an error that matches [ErrRefused] (not served either).
func CheckResponse(resp *http.Response) error {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || media != problemType {
		return nil
	}
	switch resp.StatusCode {
	case http.StatusPreconditionFailed, http.StatusPreconditionRequired, http.StatusBadRequest, http.StatusServiceUnavailable:
	default:
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblemBytes))
	var p problem
	if err != nil || json.Unmarshal(body, &p) != nil || !p.ours() {
		resp.Body = unread(body, resp.Body)
		return nil
	}
	_ = resp.Body.Close() // it was read
	if p.Type != typeStale {
		return fmt.Errorf("%w (%d): %s", ErrRefused, p.Status, cmp.Or(p.Detail, p.Title))
	}
	got, err1 := fence.Parse(p.Got)
	seen, err2 := fence.Parse(p.Seen)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("%w (%d): %s: %w", ErrRefused, p.Status, p.Title, err)
	}
	return &fence.StaleError{Resource: p.Resource, Lock: p.Lock, Got: got, Seen: seen}
}

func (p problem) ours() bool {
	switch p.Type {
	case typeStale, typeMissing, typeInvalid, typeWaiting, typeStore:
		return true
	default:
		return false
	}
}
