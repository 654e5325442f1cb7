package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/cluster/peerpb"
)

func sortMembers(m []Member) {
	slices.SortFunc(m, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
}

// Transfer moves leadership to the server called to, or to the most caught up
// voter if to is empty, and returns the name of the new leader. It returns
// ErrRefused with the reason if that cannot be, and ErrNotLeader if nobody
// leads.
func (n *Node) Transfer(ctx context.Context, to string) (leader string, err error) {
	id, _, ok := n.leader()
	if !ok {
		return "", ErrNotLeader
	}
	if id == n.id {
		return n.transferHere(ctx, to)
	}
	client, err := n.peers.client(id)
	if err != nil {
		return "", err
	}
	rep, err := client.Transfer(ctx, &peerpb.TransferRequest{To: to})
	if err != nil {
		return "", fmt.Errorf("ask the leader %s: %w", id.name(), err)
	}
	if rep.GetRefused() != "" {
		return "", fmt.Errorf("%w: %s", ErrRefused, rep.GetRefused())
	}
	return rep.GetLeader(), nil
}

// transferHere is Transfer at the leader.
func (n *Node) transferHere(ctx context.Context, to string) (leader string, err error) {
	r := n.raft.Load()
	if _, ok := n.leads(); !ok {
		return "", ErrNotLeader
	}
	if to == n.cfg.Name {
		return to, nil
	}
	f, err := n.startTransfer(r, to)
	if err != nil {
		return "", err
	}
	if err := n.await(ctx, f); err != nil {
		return "", fmt.Errorf("%w: leadership was not handed over: %w", ErrRefused, err)
	}
	return n.awaitOtherLeader(ctx)
}

func (n *Node) startTransfer(r *raft.Raft, to string) (raft.Future, error) {
	if to == "" {
		if len(n.voters()) < 2 {
			return nil, fmt.Errorf("%w: there is no other voter", ErrRefused)
		}
		if to = n.successor(); to == "" {
			return r.LeadershipTransfer(), nil
		}
	}
	for _, s := range n.members() {
		if id := serverID(s.ID); id.name() == to && s.Suffrage == raft.Voter {
			if reign := n.reign.Load(); reign != nil && n.settledIn(reign) && !n.inContact(id) {
				return nil, fmt.Errorf("%w: %s is not in contact", ErrRefused, to)
			}
			return r.LeadershipTransferToServer(s.ID, s.Address), nil
		}
	}
	return nil, fmt.Errorf("%w: %s is not a voter", ErrRefused, clip(to))
}

// successor is the name of the other voter in contact that has applied most, ""
// if none is known. Raft by itself looks only at what it has sent: a voter that
// died a moment ago is as good to it as any, and it would ask that one again and
// again.
func (n *Node) successor() (name string) {
	var most uint64
	for _, id := range n.voters() {
		state, _, known := n.stateOfServer(id)
		if id == n.id || !known || !n.inContact(id) || state.GetAppliedIndex() < most {
			continue
		}
		most, name = state.GetAppliedIndex(), id.name()
	}
	return name
}

// await waits for a future of Raft or the end of ctx.
func (n *Node) await(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	endWith(f, n.raftOver)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endWith makes a future of Raft end, with ErrRaftShutdown, when over is closed.
// Raft never answers for a wish to hand over that it has not looked at when it is
// shut down, as one whose disk hangs: who waits would wait for ever. Each future has
// a channel against that, which Raft sets in those of snapshots only. There is no
// other way to it than reflection; if that fails the wait is as long as Raft makes it.
func endWith(f raft.Future, over chan struct{}) {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return // an answer that was there at once
	}
	if c := v.Elem().FieldByName("ShutdownCh"); c.IsValid() && c.CanSet() && c.Type() == reflect.TypeOf(over) {
		c.Set(reflect.ValueOf(over))
	}
}

func (n *Node) awaitOtherLeader(ctx context.Context) (string, error) {
	for {
		changed := n.changed.C()
		if id, _, ok := n.leader(); ok && id != n.id {
			return id.name(), nil
		}
		if awaitChange(ctx, changed); ctx.Err() != nil {
			return "", ctx.Err()
		}
	}
}

// resignTimeout bounds how long a stopping leader tries to hand over. When all
// servers stop at once, nobody is there to take over.
func (n *Node) resignTimeout() time.Duration {
	return min(max(time.Second, 3*n.cfg.Election), 2*time.Second)
}

// Resign hands leadership over if this server has it, so that clients do not
// wait for an election when it stops. It returns nil if it does not lead any
// more, or there is nobody to hand over to.
func (n *Node) Resign(ctx context.Context) error {
	if _, ok := n.leads(); !ok || len(n.voters()) < 2 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, n.resignTimeout())
	defer cancel()
	_, err := n.transferHere(ctx, "")
	if errors.Is(err, ErrNotLeader) {
		return nil
	}
	return err
}
