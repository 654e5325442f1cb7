package cache

import "github.com/coordd/coord/client"

// Option changes a cache.
type Option func(*options)

type options struct {
	maxBytes  int64
	keep      func(path string) bool
	withData  bool
	listeners []func(Change)
}

// MaxBytes bounds the memory of the copy, estimated as data, paths and a few
// hundred bytes for each node. Run ends with a *SizeError when it is passed: at
// the first transaction that does, or before anything is shown while reading.
// 0 is no bound. While a subtree is read again there are two copies for a time.
func MaxBytes(n int64) Option { return func(o *options) { o.maxBytes = n } }

// Filter keeps only nodes for whose paths keep returns true. What is below a node
// that is left out is asked for itself. keep must always give the same answer
// for a path, and must not block.
func Filter(keep func(path string) bool) Option { return func(o *options) { o.keep = keep } }

// WithoutData keeps paths and Stats only.
func WithoutData() Option { return func(o *options) { o.withData = false } }

// OnChange is told each change, in the order in which they happened, when the
// copy shows it already and before WaitZxid returns for it. All nodes of the
// first reading are reported as created. f is called by the goroutine of Run,
// which goes on when it returns; it may read the cache.
func OnChange(f func(Change)) Option {
	return func(o *options) { o.listeners = append(o.listeners, f) }
}

// Change is one difference between two states of the copy that follow each other.
type Change struct {
	// Type is client.EventCreated, EventDeleted, EventChanged or EventACL.
	Type client.EventType
	// Node is the node after the change; of EventDeleted as it was before. Its
	// data must not be modified.
	Node client.Node
	// Zxid is the transaction of the change, as far as it is known: of a
	// deletion that was found by reading it is the one up to which was read.
	Zxid client.Zxid
	// Reread says that the change was found by reading the subtree, at first or
	// again: it may stand for several changes.
	Reread bool
}
