package once

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/lock"
	"github.com/coordd/coord/znode"
)

// Job is a periodic job by name. It has no state: share it freely between
// goroutines.
type Job struct {
	c    *client.Client
	path string
	opts options
}

// Option changes a job. All hosts should have the same ones.
type Option func(*options)

type options struct {
	keep    int
	catchUp int
	lock    []lock.Option
	result  func(Done, error)
}

const (
	defaultKeep = 1000
	// maxCatchUp bounds what a job that was away for long starts with.
	maxCatchUp = 10_000
)

// Keep says how many markers are kept, at least one, those of the newest periods by
// the order of their names; a few more stand there at times. The default is 1000.
// It should be more than CatchUp asks for. A period whose marker may have been
// removed is not run again, so a host whose clock is far behind does no harm. A
// negative number keeps all.
func Keep(n int) Option { return func(o *options) { o.keep = n } }

// CatchUp says which periods Run does that began before it looked: the newest n
// that have no marker, oldest first. The default is 1, the one that is due. With
// 0 Run does only periods that begin while it runs, so that one is left out if no
// host is there when it begins. Of a job that has never run only the newest is
// done, whatever n.
func CatchUp(n int) Option { return func(o *options) { o.catchUp = n } }

// Lock passes options to the job's lock: lock.Owner, lock.Labels and others.
func Lock(opts ...lock.Option) Option {
	return func(o *options) { o.lock = append(o.lock, opts...) }
}

// OnResult makes Run tell of each period that it tried, also those that another
// host has done meanwhile (Done.Repeated). It is called by Run's goroutine.
func OnResult(f func(Done, error)) Option { return func(o *options) { o.result = f } }

// New names a job; nothing is sent. Missing parts of path are made as containers.
func New(c *client.Client, path string, opts ...Option) *Job {
	o := options{keep: defaultKeep, catchUp: 1, result: func(Done, error) {}}
	for _, opt := range opts {
		opt(&o)
	}
	return &Job{c: c, path: path, opts: o}
}

// Path is the job's path.
func (j *Job) Path() string { return j.path }

func (j *Job) lockPath() string            { return strings.TrimSuffix(j.path, "/") + "/lock" }
func (j *Job) folder() string              { return strings.TrimSuffix(j.path, "/") + "/done" }
func (j *Job) marker(period string) string { return j.folder() + "/" + period }

// Turn is one attempt at one period.
type Turn struct {
	Period string
	// Key names the period of this job for ever: it is the same for each attempt
	// at it, on whichever host. It is the idempotency key for the resource.
	Key string
	// Token is the fencing token of this attempt, larger than that of every
	// earlier attempt at any period of the job.
	Token fence.Token
	// Handle is the job's lock. Its Guard makes transactions depend on it.
	Handle *lock.Handle
}

// Done says that a period is done.
type Done struct {
	Period string
	By     string      // who has done it: the lock's owner
	Token  fence.Token // of the attempt that was completed
	At     time.Time   // when the marker was made, by the cluster's clock
	// Repeated says that the period had been done before: fn was not run, or in
	// vain.
	Repeated bool
}

// Errors, besides those of packages lock and client, of fn, and of the caller's
// context.
var (
	// ErrForgotten is returned for a period so old that the markers of its time
	// are not kept any more. It is not run: it may have been done.
	ErrForgotten = errors.New("once: the period is too old to know whether it was done")
	// ErrBadSchedule is returned by Run for a schedule that names no period, or
	// whose next one is not in the future. It matches client.ErrBadArguments.
	ErrBadSchedule = fmt.Errorf("once: %w: bad schedule", client.ErrBadArguments)
)

// check refuses a period that no marker can be named by.
func (j *Job) check(period string) error {
	if strings.Contains(period, "/") {
		return fmt.Errorf("period %q: %w: it has a slash in it", period, client.ErrBadPath)
	}
	if err := znode.ValidatePath(j.marker(period)); err != nil {
		return fmt.Errorf("period %q: %w", period, err)
	}
	return nil
}

// key is the same on all hosts, also those whose client has another chroot. What
// is behind its last @ is the period: no two jobs have a key in common.
func (j *Job) key(period string) string {
	return strings.TrimSuffix(j.c.Chroot(), "/") + strings.TrimSuffix(j.path, "/") + "@" + escapeAt.Replace(period)
}

var escapeAt = strings.NewReplacer("%", "%25", "@", "%40")

// Done reads whether a period is done.
func (j *Job) Done(ctx context.Context, period string) (Done, bool, error) {
	if err := j.check(period); err != nil {
		return Done{}, false, err
	}
	return j.read(ctx, j.c, period)
}

// History reads the markers that are kept, in the order of the periods' names.
func (j *Job) History(ctx context.Context) ([]Done, error) {
	var all []Done
	for n, err := range j.c.Walk(ctx, j.folder()) {
		if errors.Is(err, client.ErrNoNode) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if period, ok := strings.CutPrefix(n.Path, j.folder()+"/"); ok && !strings.Contains(period, "/") {
			all = append(all, doneOf(period, n.Data, n.Stat))
		}
	}
	return all, nil
}
