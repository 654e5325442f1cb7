package queue

import (
	"fmt"
	"math"
	"time"

	"github.com/coordd/coord/client"
)

// Option changes a queue. Options are those of this process: others may use the
// same queue with other ones.
type Option func(*options)

type options struct {
	maxDeliveries int
	retention     time.Duration
	session       *client.Session
}

// DefaultRetention is how long the key of an item is remembered when it is done,
// unless Retention says otherwise.
const DefaultRetention = time.Hour

// MaxDeliveries moves an item that was given out n times without being done to
// the folder dead, instead of giving it out again. 0, the default, is no limit.
func MaxDeliveries(n int) Option { return func(o *options) { o.maxDeliveries = n } }

// Retention is how long the key of an item is remembered once it is done or dead,
// so that a late repeat of its Put adds no second one. It is that of the process
// that has done the item, at least a millisecond.
func Retention(d time.Duration) Option { return func(o *options) { o.retention = d } }

// WithSession makes claims depend on another session than the client's own.
func WithSession(s *client.Session) Option { return func(o *options) { o.session = s } }

// PutOption changes one Put.
type PutOption func(*putOptions)

type putOptions struct {
	keyed    bool
	key      string
	priority int
}

// Key makes a Put repeatable by anybody: while an item of this key is in the
// queue, and for the retention after it is done, a Put with the key adds nothing
// and returns the id of the first.
func Key(key string) PutOption { return func(o *putOptions) { o.keyed, o.key = true, key } }

// Priority orders items: lower numbers come out first, as with Curator and
// ZooKeeper's recipes; the default is 0. It must fit 32 bits, with a sign.
func Priority(n int) PutOption { return func(o *putOptions) { o.priority = n } }

func (o putOptions) validate() error {
	switch {
	case o.priority < math.MinInt32 || o.priority > math.MaxInt32:
		return fmt.Errorf("queue: %w: priority %d does not fit 32 bits", client.ErrBadArguments, o.priority)
	case o.keyed && !validKey(o.key):
		return fmt.Errorf("%w: it is %.40q", ErrKey, o.key)
	}
	return nil
}
