package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/check"
)

// zkClients is how many clients of the ZooKeeper port take part in each load. They
// read and write the znodes of the others.
const zkClients = 2

// zkWorker is one session of one of them.
type zkWorker struct {
	*zkClient
	rnd     *rand.Rand
	path    string // register at hand
	version int32  // of the register that was seen last
	own     string // ephemeral that this session has made, "" if none
}

// zkAgain opens sessions for a client of the ZooKeeper port, one after the other,
// until ctx ends.
func (l *load) zkAgain(ctx context.Context, name string, i int) {
	rnd := rand.New(rand.NewPCG(l.r.seed, uint64(100+i)))
	for life := 0; ctx.Err() == nil; life++ {
		timeout := 20 * time.Second
		if i%2 == 0 {
			timeout = 3 * time.Second
		}
		c, err := l.zkDial(ctx, fmt.Sprintf("%s.%d", name, life), i, timeout)
		if err != nil {
			continue
		}
		w := &zkWorker{zkClient: c, rnd: rnd}
		if err := w.work(ctx); err != nil {
			l.r.tell("%s goes on after: %v", w.name, err)
			l.r.t.Errorf("%s, at the ZooKeeper port: %v", w.name, err)
		}
		c.close()
	}
}

// work does one thing after the other until the session is over.
func (w *zkWorker) work(ctx context.Context) error {
	// A session that lives for long is ended now and then, as applications do.
	for n := 0; ctx.Err() == nil && w.over.Err() == nil && n < 1000; n++ {
		w.path = w.l.register(w.rnd.IntN(registers))
		switch err := w.step(n); {
		case err == nil:
			w.l.done.Add(1)
			w.l.zkDone.Add(1)
		case !zkExpected(err):
			return err
		}
		time.Sleep(time.Duration(w.rnd.Int64N(int64(w.l.maxIdle))))
	}
	return nil
}

// zkExpected are the errors that say how the tree is, that the connection is lost,
// or that too much is asked: no others come from a fault.
func zkExpected(err error) bool {
	for _, e := range []error{
		zk.ErrBadVersion, zk.ErrNoNode, zk.ErrNodeExists,
		zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionExpired, zk.ErrClosing,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return err.Error() == zkThrottled
}

// step is one operation.
func (w *zkWorker) step(n int) (err error) {
	data := fmt.Sprintf("%s-%d", w.name, n)
	switch w.rnd.IntN(20) {
	case 0, 1, 2, 3, 4:
		w.version, err = w.get(w.path, true)
	case 5, 6:
		w.version, err = w.get(w.path, false)
	case 7, 8, 9, 10:
		w.version, err = w.set(w.path, data, -1)
	case 11, 12, 13:
		w.version, err = w.set(w.path, data, w.version)
	case 14:
		// The others make such znodes, too: the numbers are of one sequence.
		w.own, err = w.create(w.l.root+"/e/n-", data, check.Ephemeral|check.Sequential)
	case 15:
		w.own, err = w.create(fmt.Sprintf("%s/e/%s", w.l.root, w.name), data, check.Ephemeral)
	case 16, 17:
		return w.lookAtOwn()
	case 18:
		return w.move(data)
	default:
		return w.children(w.l.root + "/e")
	}
	return err
}

// lookAtOwn looks whether an ephemeral is there, whose session lives; and takes it
// away now and then. Without one it looks at a register.
func (w *zkWorker) lookAtOwn() (err error) {
	if w.own == "" {
		w.version, err = w.get(w.path, true)
		return err
	}
	if w.rnd.IntN(4) == 0 {
		own := w.own
		w.own = ""
		return w.delete(own)
	}
	_, err = w.get(w.own, true)
	return err
}

// move makes and takes away a znode together with a change of another one.
func (w *zkWorker) move(data string) error {
	own := fmt.Sprintf("%s/own/%s", w.l.root, w.name)
	if w.rnd.IntN(2) == 0 {
		return w.multi(check.OpCreate(own, data, 0), check.OpSet(w.path, data, client.AnyVersion))
	}
	return w.multi(check.OpSet(w.path, data, client.AnyVersion), check.OpDelete(own, client.AnyVersion))
}
