package demo

import (
	"io"
	"slices"
	"time"
)

// Layer is one of the protections that the demonstrations show. Each can be left
// out, to see what it is for.
type Layer string

// Layers. Which ones a demonstration has stands at its function.
const (
	// Lock lets one worker in at a time.
	Lock Layer = "lock"
	// Fence has the resource refuse a token below one it has seen.
	Fence Layer = "fence"
	// Idempotency has the resource know an operation that it has done.
	Idempotency Layer = "idempotency"
	// CreditCheck looks at the rows that the second half of a transfer has changed.
	CreditCheck Layer = "credit-check"
	// Once has a job done by one host for each period.
	Once Layer = "once"
	// Quorum has a grant on a majority of the disks before anyone hears of it.
	Quorum Layer = "quorum"
	// OwnerCheck releases a lock only for whom it was granted to.
	OwnerCheck Layer = "owner-check"
	// Predecessor has a waiter watch only the one before it.
	Predecessor Layer = "predecessor"
)

// Options say where and how a demonstration runs.
type Options struct {
	// Cluster to use; without endpoints: start one.
	Cluster Cluster
	// Worker is the command that runs RunWorker with one more argument.
	Worker []string
	// Without names the layers to leave out. The damage is shown then, and the
	// demonstration fails.
	Without []Layer
	// Out receives the timeline.
	Out io.Writer

	more time.Duration // on top of the limit
}

func (o *Options) has(l Layer) bool { return !slices.Contains(o.Without, l) }
