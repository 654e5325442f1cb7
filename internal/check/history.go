package check

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// History is what the clients of a run have done and seen. It may be used from
// any goroutine.
type History struct {
	now func() time.Duration
	wg  sync.WaitGroup // followers of sessions and locks

	mu      sync.Mutex // guards below
	records []Record
	seq     int64
}

// New begins a history. now is its clock, the time since its start; nil for that
// of package time, which is the fake one inside of a bubble.
func New(now func() time.Duration) *History {
	if now == nil {
		start := time.Now()
		now = func() time.Duration { return time.Since(start) }
	}
	return &History{now: now}
}

// Now is the time since the start.
func (h *History) Now() time.Duration { return h.now() }

// Add appends a record and returns its number. The clients of this package do it
// by themselves; it is for what they do not know.
func (h *History) Add(r Record) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.N = len(h.records) + 1
	h.records = append(h.records, r)
	return r.N
}

// NextSeq numbers what is submitted, for Record.Seq.
func (h *History) NextSeq() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	return h.seq
}

// Digest records the digest of a server's state, when all have applied the same.
func (h *History) Digest(server, digest string) {
	now := h.now()
	h.Add(Record{Kind: Digest, Client: server, Begin: now, End: now, Data: digest})
}

// Len is how many records there are.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.records)
}

// Records is a copy of the records in the order in which they were added.
func (h *History) Records() []Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.records)
}

// Wait waits for the goroutines that follow sessions and locks: all sessions have
// to be closed, or over.
func (h *History) Wait() { h.wg.Wait() }

// Write writes one line of JSON for each record.
func (h *History) Write(w io.Writer) error {
	buffered := bufio.NewWriter(w)
	lines := json.NewEncoder(buffered)
	for _, r := range h.Records() {
		if err := lines.Encode(r); err != nil {
			return fmt.Errorf("record %d: %w", r.N, err)
		}
	}
	return buffered.Flush()
}

// Read adds the records that Write has written, also those of several processes,
// one file after the other; their times must be of one clock. Numbers are given
// anew.
func (h *History) Read(r io.Reader) error {
	base := h.Len()
	lines := json.NewDecoder(r)
	for {
		var rec Record
		err := lines.Decode(&rec)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("record %d: %w", h.Len()-base+1, err)
		}
		if rec.Watch != 0 {
			rec.Watch += base
		}
		if rec.Hold != 0 {
			rec.Hold += base
		}
		h.Add(rec)
	}
}
