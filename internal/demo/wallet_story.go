package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coordd/coord/client"
)

// The story as it is usually told, and its clock here.
const (
	storyLease = 10 * time.Second
	storyWork  = 15 * time.Second
	storyScale = float64(storyLease) / float64(shortSession)
)

// payment is what the client of the story wants.
var payment = transfer{ID: "op-1", From: "alice", To: "bob", Amount: 20}

// story is the ten steps, and what comes of it where node 1 keeps no record of
// operations, and where the client asks once more.
func (w *walletRun) story(ctx context.Context) error {
	lockPath := w.root + "/alice"
	node1, err := w.worker("node 1", shortSession, w.db)
	if err != nil {
		return err
	}
	node2, err := w.worker("node 2", shortSession, w.db)
	if err != nil {
		return err
	}
	watcher, err := w.as(ctx, "wallet")
	if err != nil {
		return err
	}
	w.say("wallet", "the story begins; its seconds are %.1f s long here", 1/storyScale)
	w.restart(storyScale)
	st := walletStory{walletRun: w, lock: lockPath, watcher: watcher, node1: node1, node2: node2}
	for _, act := range []func(context.Context) error{
		st.firstLease, st.leaseEnds, st.secondNode, st.firstFinishes, st.withoutRecord, st.clientRepeats,
	} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

type walletStory struct {
	*walletRun
	lock         string
	watcher      *client.Client
	node1, node2 *workerProcess
	entry        string // node 1's place in the queue
	steps        int
}

// step says a line of the story.
func (st *walletStory) step(who, format string, args ...any) {
	st.steps++
	st.say(who, "%2d/10  %s", st.steps, fmt.Sprintf(format, args...))
}

// aside says a line that is no step.
func (st *walletStory) aside(who, format string, args ...any) {
	st.say(who, "       %s", fmt.Sprintf(format, args...))
}

func (st *walletStory) firstLease(ctx context.Context) error {
	st.step("client", "asks node 1: %s, move %d from %s to %s", payment.ID, payment.Amount, payment.From, payment.To)
	e, err := st.node1.do(ctx, command{Do: doAcquire, Lock: st.lock})
	if err != nil {
		return err
	}
	st.entry = e.Node
	st.step("node 1", "takes the lock for %s: token %s, session %s", storyLease, st.label(e.Token), e.Session)
	if err := st.node1.pause(); err != nil {
		return err
	}
	st.step("node 1", "begins its work of %s, and stops (SIGSTOP): it cannot renew", storyWork)
	return nil
}

func (st *walletStory) leaseEnds(ctx context.Context) error {
	for {
		_, there, err := st.watcher.Exists(ctx, st.entry)
		if err != nil {
			return err
		}
		if !there {
			break
		}
		if err := lookAgain(ctx); err != nil {
			return fmt.Errorf("node 1's session does not end: %w", err)
		}
	}
	st.step("cluster", "the lease of %s is over and the lock free; node 1 does not know it", storyLease)
	return nil
}

func (st *walletStory) secondNode(ctx context.Context) error {
	st.step("client", "has no answer and asks node 2: %s, the same operation", payment.ID)
	e, err := st.node2.do(ctx, command{Do: doAcquire, Lock: st.lock})
	if err != nil {
		return err
	}
	st.step("node 2", "takes the lock: token %s, session %s", st.label(e.Token), e.Session)
	r, err := st.move(ctx, st.node2, st.o.Without)
	if err != nil {
		return err
	}
	st.step("node 2", "moves the money in one transaction: %s", st.tell(r))
	if err := st.expect(r, success, anomaly{}); err != nil {
		return err
	}
	if _, err := st.node2.do(ctx, command{Do: doRelease}); err != nil {
		return err
	}
	st.step("node 2", "releases the lock and answers the client")
	return nil
}

// firstFinishes lets node 1 go on where it stood.
func (st *walletStory) firstFinishes(ctx context.Context) error {
	st.until(storyWork)
	if err := st.node1.resume(); err != nil {
		return err
	}
	st.step("node 1", "goes on (SIGCONT) and finishes its work, as if the lock were its own")
	r, err := st.move(ctx, st.node1, st.o.Without)
	if err != nil {
		return err
	}
	st.step("node 1", "moves the money: %s", st.tell(r))
	want := alreadyProcessed
	if !st.o.has(Idempotency) {
		want = rejectedStale
	}
	return st.expect(r, want, anomaly{ErrOldOverNew, "node 1 moved the money although node 2 had after it"})
}

// withoutRecord has node 1 write once more as if it kept no record of operations:
// then the fence is what stops it.
func (st *walletStory) withoutRecord(ctx context.Context) error {
	r, err := st.move(ctx, st.node1, append([]Layer{Idempotency}, st.o.Without...))
	if err != nil {
		return err
	}
	st.aside("node 1", "the same without a record of operations: %s", st.tell(r))
	return st.expect(r, rejectedStale, anomaly{ErrOldOverNew, "node 1, which had lost the lock, moved the money after node 2"})
}

// clientRepeats has node 2 asked again, under a lock and a token that are good.
func (st *walletStory) clientRepeats(ctx context.Context) error {
	e, err := st.node2.do(ctx, command{Do: doAcquire, Lock: st.lock})
	if err != nil {
		return err
	}
	r, err := st.move(ctx, st.node2, st.o.Without)
	if err != nil {
		return err
	}
	st.aside("client", "lost the answer and asks node 2 again, which takes token %s: %s", st.label(e.Token), st.tell(r))
	return st.expect(r, alreadyProcessed, anomaly{ErrLogicalRepeat, payment.ID + " was applied twice, under two tokens that were both good"})
}

// move has a node make the payment.
func (st *walletStory) move(ctx context.Context, n *workerProcess, without []Layer) (receipt, error) {
	e, err := n.do(ctx, command{Do: doTransfer, Lock: st.lock, Transfer: &payment, Without: without})
	if err != nil {
		return receipt{}, err
	}
	if e.Receipt == nil {
		return receipt{}, errors.New("a transfer without a receipt")
	}
	return *e.Receipt, nil
}
