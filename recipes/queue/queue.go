package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/settle"
)

// Queue is a queue by name. It is safe for concurrent use; share one between the
// goroutines of a process, because it remembers what it has seen of the queue.
type Queue struct {
	c     *client.Client
	path  string
	opts  options
	index *index
}

// New names a queue; nothing is sent. Missing parts of path are made as
// containers when they are needed.
func New(c *client.Client, path string, opts ...Option) *Queue {
	o := options{retention: DefaultRetention}
	for _, opt := range opts {
		opt(&o)
	}
	if o.session != nil {
		c = o.session.Client()
	}
	q := &Queue{c: c, path: path, opts: o}
	q.index = newIndex(c, q.at(itemsFolder))
	return q
}

// Path is the queue's path.
func (q *Queue) Path() string { return q.path }

// at is the path of something below the queue's.
func (q *Queue) at(folder string) string {
	if q.path == "/" {
		return "/" + folder
	}
	return q.path + "/" + folder
}

// fullPath is a path as it is in the cluster: two clients that see the queue through
// different chroots must name its items alike to a resource.
func (q *Queue) fullPath(path string) string {
	return strings.TrimSuffix(q.c.Chroot(), "/") + path
}

// maxParents bounds how often a folder is made again because it was reaped between
// its making and its use.
const maxParents = 10

// Put adds an item and returns its id, which is unique, and with [Key] that of
// the key. Data may be empty, and nil; if it is larger than the cluster allows the
// error is client.ErrTooLarge.
//
// An item is added once, also if answers are lost. If ctx ends after it was sent,
// the error matches client.ErrUnknownOutcome: with a Key, simply repeat the Put.
func (q *Queue) Put(ctx context.Context, data []byte, opts ...PutOption) (id string, err error) {
	var o putOptions
	for _, opt := range opts {
		opt(&o)
	}
	if err := o.validate(); err != nil {
		return "", err
	}
	var ops []client.Op
	folders := []string{itemsFolder}
	if id = newID(); o.keyed {
		id, folders = keyID(o.key), append(folders, keysFolder)
		ops = append(ops, client.OpCreate(q.at(keysFolder)+"/"+id, []byte("in the queue")))
	}
	ops = append(ops, client.OpCreate(q.at(itemsFolder)+"/"+itemPrefix(o.priority, id), data, client.WithSequential()))
	for range maxParents {
		_, err := q.c.Txn(settle.Repeatable(ctx, q.c), ops...)
		switch {
		case err == nil, o.keyed && errors.Is(err, client.ErrNodeExists): // it was put before
			return id, nil
		case !errors.Is(err, client.ErrNoNode):
			return "", err
		}
		if err := q.folders(ctx, folders...); err != nil {
			return "", err
		}
	}
	return "", q.noFolder()
}

func (q *Queue) folders(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := settle.Folders(ctx, q.c, q.at(name)); err != nil {
			return err
		}
	}
	return nil
}

func (q *Queue) noFolder() error {
	return fmt.Errorf("queue %s: %w: its folders are deleted again and again", q.path, client.ErrNoNode)
}

// Len is how many items are in the queue, those that somebody works on and those
// that are held back for a time included.
func (q *Queue) Len(ctx context.Context) (int, error) {
	items := q.at(itemsFolder)
	for range lenTries {
		st, _, err := q.c.Exists(ctx, items, client.Mode(client.Linearizable))
		if err != nil || st.NumChildren == 0 {
			return 0, err
		}
		_, claims, err := q.c.Exists(ctx, items+"/"+claimsFolder, client.Mode(client.ReadSession))
		if err != nil {
			return 0, err
		}
		again, _, err := q.c.Exists(ctx, items, client.Mode(client.ReadSession))
		if err != nil {
			return 0, err
		}
		if st.Czxid != again.Czxid || st.Pzxid != again.Pzxid {
			continue // the folder of claims may have come or gone in between
		}
		if claims {
			return int(st.NumChildren) - 1, nil
		}
		return int(st.NumChildren), nil
	}
	names, err := q.c.Children(ctx, items)
	if errors.Is(err, client.ErrNoNode) {
		return 0, nil
	}
	n := 0
	for _, name := range names {
		if name != claimsFolder {
			n++
		}
	}
	return n, err
}

// lenTries is how often Len looks at a queue that changes, before it reads all
// names.
const lenTries = 3

// ttl is a duration as the cluster takes it: whole milliseconds, at least one.
func ttl(d time.Duration) time.Duration {
	return max(time.Millisecond, (d + time.Millisecond - 1).Truncate(time.Millisecond))
}
