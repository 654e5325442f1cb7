package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/check"
	"github.com/coordd/coord/recipes/election"
	"github.com/coordd/coord/recipes/lock"
	"github.com/coordd/coord/wire"
)

// aDay is the age of a backup. The clocks of its cluster are slow: as much happens
// within a timeout as by default, and a day is 1440 heartbeats of a minute.
const (
	aDay    = 24 * time.Hour
	dayPace = time.Minute
)

// dayPlan is what goes wrong in a day: leaders die and are moved, so that there are
// many epochs; clients vanish; all servers lose their power once.
func dayPlan(c Config) (plan []Step) {
	for hour := range 22 {
		at := c.paces(float64(60 + 60*hour))
		plan = append(plan, Step{At: at, Kind: LoseClient, A: hour})
		switch hour % 3 {
		case 0:
			plan = append(plan, Step{At: at, Lasts: c.paces(5), Kind: Kill, A: Leader})
		case 1:
			plan = append(plan, Step{At: at, Kind: Transfer, A: Leader})
		default:
			plan = append(plan, Step{At: at, Kind: Snapshot, A: hour % c.Servers}, Step{At: at, Kind: EndSession, A: 1})
		}
	}
	plan = append(plan, Step{At: c.paces(700), Lasts: c.paces(4), Kind: PowerOff, B: 1})
	// And some when the backup is restored and clients have come back.
	return append(plan, Step{At: aDay + c.paces(60), Lasts: c.paces(5), Kind: Kill, A: Leader}, Step{At: aDay + c.paces(90), Kind: Transfer, A: Leader})
}

// TestDayOldBackupIsRestoredWhileClientsRun lets a day pass between a backup and its
// restore, in which locks are taken, leaders change, and sessions come and go. The
// first token behind the restore is above every one before; nobody is stuck, whatever
// it waits for; and each session hears why it has ended.
func TestDayOldBackupIsRestoredWhileClientsRun(t *testing.T) {
	if testing.Short() {
		t.Skip("a day in a cluster, for half a minute")
	}
	c := Config{Clients: 6, Pace: dayPace, Keep: *keepFlag}
	c.Length = aDay + c.paces(140)
	c.Plan = dayPlan(c.withDefaults())
	c.Slower = func(at time.Duration) float64 {
		if at > c.paces(60) && at < aDay-c.paces(60) {
			return 12
		}
		return 1
	}
	day := &theDay{}
	c.Beside = day.pass
	out := Must(t, c)
	day.judge(t, &out)
}

// theDay is what the operator does, and the cast of the moment of the restore.
type theDay struct {
	w       *world
	clients []*check.Client
	waits   sync.WaitGroup
	before  *backup
	held    *check.Held
	leads   *check.Leading
	zk      *zkClient

	mu   sync.Mutex // guards below
	ends map[string]error
}

// must notes what cannot be, and says whether it is so.
func (d *theDay) must(what string, err error) bool {
	if err != nil {
		d.w.wrong("%s: %v", what, err)
	}
	return err == nil
}

func (d *theDay) client(name string) *check.Client {
	c, err := d.w.dial(name, d.w.cfg.sessionTimeout())
	if !d.must(name, err) {
		return nil
	}
	cl := d.w.history.Client(name, c)
	d.clients = append(d.clients, cl)
	return cl
}

// pass does the day.
func (d *theDay) pass(w *world) {
	d.w, d.ends = w, map[string]error{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer d.leave()
	operator := d.client("operator-of-yesterday")
	if operator == nil {
		return
	}
	_, err := operator.Create(ctx, "/kept", "as it was", 0)
	d.must("create", err)
	if d.before, err = save(ctx, operator.Admin().Any()); !d.must("backup", err) {
		return
	}
	_, err = operator.Set(ctx, "/kept", "newer", client.AnyVersion)
	d.must("set", err)
	_, err = operator.Create(ctx, "/later", "made after the backup", 0)
	d.must("create", err)
	if !w.sleep(aDay-time.Since(w.began)) || !d.gather(ctx) || !w.sleep(w.cfg.paces(5)) {
		return
	}
	now := d.client("operator-of-today")
	if now == nil {
		return
	}
	if _, err = w.restore(ctx, now.Admin().Any(), d.before); !d.must("restore", err) {
		return
	}
	d.afterwards(ctx)
}

// gather lets clients hold, wait for and watch all that there is.
func (d *theDay) gather(ctx context.Context) bool {
	holder, waiter, watcher := d.client("holder"), d.client("waiter"), d.client("watcher")
	leader, candidate, observer := d.client("leader"), d.client("candidate"), d.client("observer")
	if holder == nil || waiter == nil || watcher == nil || leader == nil || candidate == nil || observer == nil {
		return false
	}
	var err error
	if d.held, err = holder.Acquire(ctx, "/cast/lock", check.Alone, 0, lock.New(holder.Client, "/cast/lock").Acquire); !d.must("acquire", err) {
		return false
	}
	if d.leads, err = leader.Campaign(ctx, election.New(leader.Client, "/cast/election"), "before the restore"); !d.must("campaign", err) {
		return false
	}
	d.waitsIn("waiter", func() error {
		_, err := waiter.Acquire(ctx, "/cast/lock", check.Alone, 0, lock.New(waiter.Client, "/cast/lock").Acquire)
		return err
	})
	d.waitsIn("candidate", func() error {
		_, err := candidate.Campaign(ctx, election.New(candidate.Client, "/cast/election"), "never elected")
		return err
	})
	d.waitsIn("watcher", func() error { return watcher.Watch(ctx, "/", 0, nil) })
	d.waitsIn("observer", func() error { return observer.Observe(ctx, election.New(observer.Client, "/cast/election")) })
	d.zk, err = d.w.dialZK(newMachine("zk-cast"), d.w.cfg.sessionTimeout(), rand.New(rand.NewPCG(d.w.cfg.Seed, 7)))
	if !d.must("a session on the ZooKeeper port", err) {
		return false
	}
	r := &rider{w: d.w, number: 1000}
	d.must("ephemeral", r.zkMake(ctx, d.zk, "/zk-cast", check.Ephemeral))
	q, rec := zkRead(check.Get, wire.GetData, "/kept", check.SessionRead, true)
	_, err = d.zk.one(ctx, q, rec)
	return d.must("watch", err)
}

// waitsIn lets a client wait for something that ends with its session.
func (d *theDay) waitsIn(who string, f func() error) {
	d.waits.Go(func() {
		err := f()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ends[who] = err
	})
}

var errNothing = errors.New("nothing")

// restoredReason says whether an error tells that a backup was restored.
func restoredReason(err error) bool {
	var e *client.SessionError
	return errors.As(err, &e) && e.Reason == client.Restore && strings.Contains(e.Error(), "replaced by a backup")
}

// afterwards looks at what each has heard, and what there is now.
func (d *theDay) afterwards(ctx context.Context) {
	w := d.w
	w.until(30, "all that waited have heard of the restore", func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, who := range []string{"waiter", "candidate", "watcher", "observer"} {
			if err, ok := d.ends[who]; !ok {
				return errors.New(who + " waits")
			} else if !restoredReason(err) {
				return fmt.Errorf("%s was told: %w", who, cmp.Or(err, errNothing))
			}
		}
		return nil
	})
	for who, h := range map[string]*check.Held{"holder": d.held, "leader": d.leads.Held} {
		select {
		case <-h.Lost():
			if err := context.Cause(h.Context()); !restoredReason(err) {
				w.wrong("the %s was told: %v", who, err)
			}
		default:
			w.wrong("the %s has not heard of the restore", who)
		}
	}
	select {
	case <-d.zk.over:
	case <-time.After(w.cfg.paces(30)):
		w.wrong("a session of before the restore goes on at the ZooKeeper port")
	}
	fresh := d.client("fresh")
	if fresh == nil {
		return
	}
	if n, err := fresh.Get(ctx, "/kept", client.Linearizable); err != nil || string(n.Data) != "as it was" || n.Stat.Mzxid > d.before.zxid {
		w.wrong("/kept is %q of %s behind the restore of a backup of %s: %v", n.Data, n.Stat.Mzxid, d.before.zxid, err)
	}
	for _, path := range []string{"/later", "/zk-cast"} {
		if _, err := fresh.Get(ctx, path, client.Linearizable); !errors.Is(err, client.ErrNoNode) {
			w.wrong("%s behind the restore: %v", path, err)
		}
	}
	waiting, cancel := context.WithTimeout(ctx, w.cfg.paces(30))
	defer cancel()
	h, err := fresh.Acquire(waiting, "/cast/lock", check.Alone, 0, lock.New(fresh.Client, "/cast/lock").Acquire)
	if d.must("the lock that was held", err) {
		d.must("release", h.Release(waiting))
	}
	l, err := fresh.Campaign(waiting, election.New(fresh.Client, "/cast/election"), "behind the restore")
	if d.must("the election that was decided", err) {
		d.must("resign", l.Resign(waiting))
	}
}

// leave closes what is open.
func (d *theDay) leave() {
	for _, c := range d.clients {
		_ = c.Close() // most are over
	}
	if d.zk != nil {
		d.zk.leave()
	}
	d.waits.Wait()
}

// judge looks whether the day and the restore were worth their name.
func (d *theDay) judge(t *testing.T, out *Outcome) {
	t.Helper()
	records := d.w.history.Records()
	var cut check.Record
	for _, r := range records {
		if r.Kind == check.Restored {
			cut = r
		}
	}
	if cut.Zxid == 0 {
		t.Fatal("nothing was restored")
	}
	count := map[string]int{}
	for _, r := range records {
		before := r.Session != 0 && uint64(r.Session) < uint64(cut.Zxid)
		switch {
		case r.Kind == check.Acquire && r.Outcome == check.Done && before:
			count["tokens of before"]++
		case r.Kind == check.Acquire && r.Outcome == check.Done:
			count["tokens of afterwards"]++
		case r.Kind == check.Ended && before && r.End < cut.Begin:
			count["sessions that ended before"]++
		case r.Kind == check.Ended && before && (r.Reason == check.ByRestore || r.Reason == check.ByServer):
			count["sessions that the restore has ended"]++
		case r.Kind == check.Ended && before && r.Reason != check.ByClient: // who has just closed it
			t.Errorf("session %s, open at the restore, has ended as %q: %s", r.Session, r.Reason, r.Detail)
		}
	}
	for what, least := range map[string]int{
		"tokens of before": 40, "tokens of afterwards": 10, "sessions that ended before": 20, "sessions that the restore has ended": 10,
	} {
		if count[what] < least {
			t.Errorf("%d %s, want %d: the run shows little", count[what], what, least)
		}
	}
	if age := cut.Begin; age < aDay {
		t.Errorf("the backup was %s old", age)
	}
	t.Logf("%v, %d records, epochs %d to %d", count, out.Records, d.before.zxid.Epoch(), cut.Zxid.Epoch())
}
