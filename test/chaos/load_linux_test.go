package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/check"
	"github.com/coordd/coord/recipes/lock"
	"github.com/coordd/coord/test/internal/child"
	"github.com/coordd/coord/test/internal/tunnet"
	"github.com/coordd/coord/zxid"
)

// load is what clients do while the cluster is hurt. Each has a session of its own
// and a host of its own, and writes down what it does and sees.
type load struct {
	r       *rig
	h       *check.History
	root    string         // everything is at root and below
	hosts   []*tunnet.Host // of the clients
	done    atomic.Int64   // operations that succeeded
	zkDone  atomic.Int64   // those of them that came through the ZooKeeper port
	opened  atomic.Int64   // sessions
	maxIdle time.Duration  // between two operations of a client
	judged  bool

	stopWork, stopWatch context.CancelFunc
	workers, watchers   sync.WaitGroup
	seen                atomic.Uint64 // newest transaction that a watch has told
}

// registers is how many znodes the clients read and write together. Many
// operations on one make its history hard to decide, few show little.
const registers = 6

// loadOptions say what the load is.
type loadOptions struct {
	root    string
	clients int            // that read and write, and take locks; a watcher, a visitor and zkClients come on top
	hosts   []*tunnet.Host // of an earlier load, to be used again
	maxIdle time.Duration  // 40 ms
}

// startLoad makes the znodes and starts the clients.
func (r *rig) startLoad(o loadOptions) *load {
	r.t.Helper()
	l := &load{r: r, h: check.New(nil), root: o.root, hosts: o.hosts, maxIdle: o.maxIdle}
	if l.maxIdle == 0 {
		l.maxIdle = 40 * time.Millisecond
	}
	for i := len(l.hosts); r.net != nil && i < o.clients+2+zkClients; i++ {
		l.hosts = append(l.hosts, r.host(fmt.Sprintf("c%d", i)))
	}
	var ctx, watching context.Context
	ctx, l.stopWork = context.WithCancel(context.Background())
	watching, l.stopWatch = context.WithCancel(context.Background())
	r.t.Cleanup(l.abandon)
	l.prepare()
	for i := range o.clients {
		l.workers.Go(func() { l.again(ctx, fmt.Sprintf("c%d", i), i, l.work) })
	}
	l.watchers.Go(func() { l.again(watching, "watcher", o.clients, l.watch) })
	l.workers.Go(func() { l.visit(ctx, o.clients+1) })
	for i := range zkClients {
		l.workers.Go(func() { l.zkAgain(ctx, fmt.Sprintf("z%d", i), o.clients+2+i) })
	}
	l.workers.Go(func() { l.ballast(ctx) })
	return l
}

// stop ends the load.
func (l *load) stop() {
	l.stopWork()
	l.workers.Wait()
	l.stopWatch()
	l.watchers.Wait()
}

// abandon ends a load that was not judged, and keeps what it has seen if the test
// has failed.
func (l *load) abandon() {
	l.stop()
	if l.judged || !l.r.t.Failed() {
		return
	}
	o := l.checkOptions()
	o.Decide, o.AllowUndecided = time.Second, true // what has failed is known
	l.save(check.Check(l.h, o))
}

func (l *load) prepare() {
	l.r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := l.dial(ctx, "setup", 0, 30*time.Second)
	if err != nil {
		l.r.t.Fatal(err)
	}
	paths := []string{l.root, l.root + "/e", l.root + "/q", l.root + "/own"}
	for i := range registers {
		paths = append(paths, l.register(i))
	}
	for _, path := range paths {
		if _, err := c.Create(ctx, path, "made "+path, 0); err != nil {
			l.r.t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		l.r.t.Fatal(err)
	}
}

func (l *load) register(i int) string { return fmt.Sprintf("%s/r%d", l.root, i) }

// ballast fills the log, so that snapshots are written all the time. Nobody looks
// at it, and what becomes of a write does not matter.
func (l *load) ballast(ctx context.Context) {
	c, err := client.Dial(ctx, strings.Join(l.r.endpoints(), ","), append(l.network(0), client.WithoutSession())...)
	if err != nil {
		return
	}
	defer c.Close()
	data := make([]byte, 48<<10)
	for n := 0; ctx.Err() == nil; n++ {
		path := fmt.Sprintf("/ballast%d", n%4)
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		if _, err := c.Set(short, path, data, client.AnyVersion); errors.Is(err, client.ErrNoNode) {
			_, _ = c.Create(short, path, data)
		}
		cancel()
		time.Sleep(25 * time.Millisecond)
	}
}

// network makes a client live at the host of client i.
func (l *load) network(i int) []client.Option {
	if l.r.net == nil {
		return nil
	}
	h := l.hosts[i]
	return []client.Option{client.WithGRPCOptions(grpc.WithContextDialer(
		func(ctx context.Context, address string) (net.Conn, error) { return h.Dial(ctx, address) }))}
}

// dial opens a session from the host of client i.
func (l *load) dial(ctx context.Context, name string, i int, timeout time.Duration) (*check.Client, error) {
	opts := append(l.network(i), l.h.Tap(), client.WithSessionTimeout(timeout), client.WithSessionName(name))
	// Each prefers another server.
	endpoints := l.r.endpoints()
	for range i % len(endpoints) {
		endpoints = append(endpoints[1:], endpoints[0])
	}
	c, err := client.Dial(ctx, strings.Join(endpoints, ","), opts...)
	if err != nil {
		return nil, err
	}
	l.opened.Add(1)
	return l.h.Client(name, c), nil
}

// worker is one session of one client.
type worker struct {
	*check.Client
	l       *load
	name    string
	rnd     *rand.Rand
	version int64 // of the register that was seen last
	path    string
}

// again opens sessions for a client, one after the other, until ctx ends.
func (l *load) again(ctx context.Context, name string, i int, live func(context.Context, *worker) error) {
	rnd := rand.New(rand.NewPCG(l.r.seed, uint64(100+i)))
	for life := 0; ctx.Err() == nil; life++ {
		// A session that outlives most faults, and one in three that does not.
		timeout := 20 * time.Second
		if i%3 == 0 {
			timeout = 3 * time.Second
		}
		c, err := l.dial(ctx, name, i, timeout)
		if err != nil {
			continue
		}
		w := &worker{Client: c, l: l, name: fmt.Sprintf("%s.%d", name, life), rnd: rnd}
		if err := live(ctx, w); err != nil && ctx.Err() == nil && w.lives() {
			l.r.tell("%s goes on after: %v", w.name, err)
			l.surprise(w.name, err)
		}
		_ = c.Close() // an error is that the session is over, which is recorded
	}
}

// work does one thing after the other until the session is over.
func (l *load) work(ctx context.Context, w *worker) error {
	for n := 0; ctx.Err() == nil; n++ {
		if w.Session().Context().Err() != nil {
			return context.Cause(w.Session().Context())
		}
		w.path = l.register(w.rnd.IntN(registers))
		if err := w.step(n); err == nil {
			l.done.Add(1)
		} else if !expected(err) {
			return err
		}
		time.Sleep(time.Duration(w.rnd.Int64N(int64(l.maxIdle))))
	}
	return nil
}

// lives says whether the session goes on. It gives its end a moment, which the
// answer to a call may have overtaken.
func (w *worker) lives() bool {
	select {
	case <-w.Session().Context().Done():
		return false
	case <-time.After(100 * time.Millisecond):
		return true
	}
}

// surprise fails the test for an error that no client should see as long as its
// session lives: a fault is a delay for it, unless it gives up waiting, or the
// disks of a majority are full.
func (l *load) surprise(name string, err error) {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, client.ErrDiskFull) {
		l.r.t.Errorf("%s, whose session lives: %v", name, err)
	}
}

// expected are the answers that are as good as success: they say how the tree is.
func expected(err error) bool {
	return errors.Is(err, client.ErrBadVersion) || errors.Is(err, client.ErrNoNode) || errors.Is(err, client.ErrNodeExists)
}

// step is one operation. Its context bounds how long a client waits through a
// fault: some withdraw what they have asked for.
func (w *worker) step(n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+w.rnd.IntN(40))*time.Second)
	defer cancel()
	data := fmt.Sprintf("%s-%d", w.name, n)
	switch w.rnd.IntN(20) {
	case 0, 1, 2, 3, 4:
		return w.saw(w.Get(ctx, w.path, client.Linearizable))
	case 5, 6:
		return w.saw(w.Get(ctx, w.path, client.ReadSession))
	case 7, 8, 9, 10:
		st, err := w.Set(ctx, w.path, data, client.AnyVersion)
		w.version = st.Version
		return err
	case 11, 12, 13:
		_, err := w.Set(ctx, w.path, data, w.version)
		return err
	case 14, 15:
		return w.flow(ctx, data)
	case 16:
		_, err := w.Create(ctx, w.l.root+"/e/n-", data, check.Ephemeral|check.Sequential)
		return err
	case 17:
		return w.move(ctx, data)
	case 18:
		_, err := w.Children(ctx, w.l.root+"/e", client.Linearizable)
		return err
	default:
		return w.lock(ctx)
	}
}

func (w *worker) saw(n client.Node, err error) error {
	w.version = n.Stat.Version
	return err
}

// answerWithin is longer than any fault: whoever does not withdraw a write is told
// of its outcome by then.
const answerWithin = 2 * time.Minute

// flow sends several writes without waiting in between.
func (w *worker) flow(ctx context.Context, data string) error {
	const depth = 8
	answers := make(chan error, depth)
	for i := range depth {
		path := w.l.register(w.rnd.IntN(registers))
		if err := w.SetAsync(path, fmt.Sprintf("%s+%d", data, i), client.AnyVersion, func(err error) { answers <- err }); err != nil {
			return err
		}
	}
	tooLate := time.After(answerWithin)
	for range depth {
		select {
		case err := <-answers:
			if err != nil {
				return err
			}
		case <-w.Session().Context().Done():
			return context.Cause(w.Session().Context())
		case <-tooLate:
			return fmt.Errorf("a write has no answer after %v", answerWithin)
		}
	}
	return ctx.Err()
}

// move makes and takes away a znode together with a change of another one.
func (w *worker) move(ctx context.Context, data string) error {
	own := fmt.Sprintf("%s/own/%s", w.l.root, w.name)
	if w.rnd.IntN(2) == 0 {
		_, err := w.Txn(ctx, check.OpCreate(own, data, 0), check.OpSet(w.path, data, client.AnyVersion))
		return err
	}
	_, err := w.Txn(ctx, check.OpSet(w.path, data, client.AnyVersion), check.OpDelete(own, client.AnyVersion))
	return err
}

// lock holds a lock for a moment.
func (w *worker) lock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	path := w.l.root + "/lock"
	held, err := w.Acquire(ctx, path, check.Alone, 0, lock.New(w.Client.Client, path).Acquire)
	if err != nil {
		return nil //nolint:nilerr // nobody promises a lock in time
	}
	time.Sleep(time.Duration(w.rnd.IntN(30)) * time.Millisecond)
	_ = held.Release(ctx) // an error is made up for by the client
	return nil
}

// watch follows all changes.
func (l *load) watch(ctx context.Context, w *worker) error {
	return w.Watch(ctx, l.root, 0, func(e client.Event) bool {
		l.seen.Store(max(l.seen.Load(), uint64(e.Zxid)))
		return true
	})
}

// settle waits until the watch that goes on has told everything: one that has
// fallen silent for good is not noticed otherwise. Nobody else writes any more.
func (l *load) settle() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := l.dial(ctx, "last writer", 0, 30*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	var first uint64
	// A watch that begins anew meanwhile tells of a later write only.
	for n := 0; first == 0 || l.seen.Load() < first && ctx.Err() == nil; n++ {
		made, err := c.Create(ctx, fmt.Sprintf("%s/own/last-%d", l.root, n), fmt.Sprintf("last %d", n), 0)
		if err != nil && ctx.Err() != nil && first != 0 {
			break
		}
		if err != nil {
			return err
		}
		if first == 0 {
			first = uint64(made.Stat.Czxid)
		}
		for end := time.Now().Add(time.Second); l.seen.Load() < first && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
	}
	l.h.Settled(zxid.ID(first))
	return nil
}

// visit opens sessions, leaves an ephemeral, and goes: in order, or in silence.
func (l *load) visit(ctx context.Context, i int) {
	rnd := rand.New(rand.NewPCG(l.r.seed, uint64(100+i)))
	for n := 0; ctx.Err() == nil; n++ {
		c, err := l.dial(ctx, fmt.Sprintf("visitor.%d", n), i, 4*time.Second)
		if err != nil {
			continue
		}
		if _, err := c.Create(ctx, fmt.Sprintf("%s/e/visitor-%d", l.root, n), "here", check.Ephemeral); err == nil {
			l.done.Add(1)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(rnd.IntN(1500)) * time.Millisecond):
		}
		_ = c.Close()
	}
}

// waitProgress waits until the clients have done so many operations more.
func (l *load) waitProgress(more int64, limit time.Duration) {
	l.r.t.Helper()
	before := l.done.Load()
	child.Poll(l.r.t, limit, "operations of clients", func() error {
		if now := l.done.Load(); now < before+more {
			return fmt.Errorf("%d of %d", now-before, more)
		}
		return nil
	})
}

// progressOr waits for so many operations more, but no longer than limit.
func (l *load) progressOr(more int64, limit time.Duration) {
	before := l.done.Load()
	for deadline := time.Now().Add(limit); l.done.Load() < before+more && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
}

// finish ends the load when the clients go on again, and have done what shows
// something; it looks at everything once more, and judges it all. The cluster must
// be whole.
func (l *load) finish() {
	l.r.t.Helper()
	l.waitProgress(50, time.Minute)
	child.Poll(l.r.t, time.Minute, "operations of clients", l.enough)
	l.stopWork()
	l.workers.Wait()
	if err := l.settle(); err != nil {
		l.r.t.Errorf("the last writes: %v", err)
	}
	l.stop()
	if err := l.lastLook(l.root, time.Minute); err != nil {
		l.r.t.Errorf("the last look: %v", err)
	}
	l.h.Wait()
	l.digests()
	l.judge()
}

// lastLook reads everything at root and below once more.
func (l *load) lastLook(root string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c, err := l.dial(ctx, "final", 0, 30*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Final(ctx, root)
}

func (l *load) digests() {
	digests, err := l.r.sameDigests()
	if err != nil {
		l.r.t.Errorf("equal digests: %v", err)
	}
	for name, d := range digests {
		l.h.Digest(name, d)
	}
}

// What a history must have to show anything.
const (
	leastOperations   = 300
	leastZKOperations = 30
)

// enough is nil once the clients have done so much.
func (l *load) enough() error {
	if done, zk := l.done.Load(), l.zkDone.Load(); done < leastOperations || zk < leastZKOperations {
		return fmt.Errorf("%d, %d of them at the ZooKeeper port: a history of those shows little", done, zk)
	}
	return nil
}

func (l *load) judge() {
	l.r.t.Helper()
	began := time.Now()
	found := check.Check(l.h, l.checkOptions())
	done, zk := l.done.Load(), l.zkDone.Load()
	l.r.t.Logf("%d records, %d operations, %d of them at the ZooKeeper port, %d sessions, judged in %v",
		l.h.Len(), done, zk, l.opened.Load(), time.Since(began).Round(time.Millisecond))
	for _, v := range found {
		l.r.t.Error(v)
	}
	if l.r.t.Failed() {
		l.save(found)
	}
	l.judged, l.h = true, nil // a long run has many histories
}

func (l *load) checkOptions() check.Options {
	// A cluster may be without a leader for as long as a schedule keeps it so. The
	// clients share a machine with the servers, and are late when that is busy.
	return check.Options{Bound: 60 * time.Second, Tolerance: 50 * time.Millisecond, Decide: time.Minute}
}

// save keeps the history, and its drawings, where the rig keeps the rest.
func (l *load) save(found []check.Violation) {
	dir := filepath.Join(l.r.dir, "history"+strings.ReplaceAll(l.root, "/", "-"))
	note := fmt.Sprintf("%s, seed %d; what was done to the servers: %s", l.r.t.Name(), l.r.seed, filepath.Join(l.r.dir, timelineFile))
	if err := check.Save(dir, l.h, found, note); err != nil {
		l.r.t.Error(err)
	}
}
