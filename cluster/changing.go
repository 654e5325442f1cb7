package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/cluster/peerpb"
)

// change is one change of the membership.
type change struct {
	begin func(*raft.Raft) raft.Future
	// voters have to agree on everything from then on, this change included; nil
	// if they are those of before.
	voters []serverID
}

func votersOf(servers []raft.Server) (out []serverID) {
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			out = append(out, serverID(s.ID))
		}
	}
	return out
}

// votersWithout are the voters once s is none any more; nil if it is none.
func votersWithout(servers []raft.Server, s raft.Server) []serverID {
	if s.Suffrage != raft.Voter {
		return nil
	}
	return slices.DeleteFunc(votersOf(servers), func(id serverID) bool { return id == serverID(s.ID) })
}

func removeChange(servers []raft.Server, s raft.Server) *change {
	return &change{voters: votersWithout(servers, s), begin: func(r *raft.Raft) raft.Future {
		return r.RemoveServer(s.ID, 0, memberChangeTimeout)
	}}
}

func demoteChange(servers []raft.Server, s raft.Server) *change {
	return &change{voters: votersWithout(servers, s), begin: func(r *raft.Raft) raft.Future {
		return r.DemoteVoter(s.ID, 0, memberChangeTimeout)
	}}
}

func promoteChange(servers []raft.Server, s raft.Server) *change {
	return &change{voters: append(votersOf(servers), serverID(s.ID)), begin: func(r *raft.Raft) raft.Future {
		return r.AddVoter(s.ID, s.Address, 0, memberChangeTimeout)
	}}
}

// changeMembership makes one change of the membership at the leader of r. consider
// is given the membership of the moment, which is committed if r still goes on, and
// does not change until the change that it wants has ended: two that are safe alone
// may not be safe together, and Raft would queue both. A nil change is none, and
// proves nothing: who concludes something from that membership proves the reign
// afterwards (proveReign). While the states of the servers differ nothing is changed
// (ErrDigestAlarm). If r is over, or the outcome is not known, the error is errNotNow.
//
// A new membership holds from the moment it is in the leader's log, so it must be
// able to commit itself: if too few of its voters are there, the cluster stands
// until they are back, and the change cannot be undone. Reports are a second old
// at worst; therefore the voters to come are asked again, right before.
func (n *Node) changeMembership(ctx context.Context, r *reign, consider func([]raft.Server) (*change, error)) error {
	if err := n.changesRefused(); err != nil {
		return err
	}
	select {
	case n.changing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: another change is under way: %w", errNotNow, ctx.Err())
	}
	free := func() { <-n.changing }
	c, err := n.planned(ctx, r, consider)
	if c == nil || err != nil {
		free()
		return err
	}
	f := c.begin(n.raft.Load())
	done := make(chan error, 1)
	go func() { // ends with the change, or with Raft
		defer free()
		done <- f.Error()
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotNow, err)
	}
	n.changed.flash()
	return nil
}

// planned is the change that consider wants, nil if none, once nothing is in its
// way. Who waited for his turn may have been given up meanwhile, and this server may
// have lost its office: then the membership that it knows may never be committed.
// One who leads again after that has to weigh everything anew.
func (n *Node) planned(ctx context.Context, r *reign, consider func([]raft.Server) (*change, error)) (*change, error) {
	if err := cmp.Or(ctx.Err(), n.stillReigns(r)); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotNow, err)
	}
	c, err := consider(n.members())
	if c == nil || err != nil {
		return nil, err
	}
	if err := n.quorumAnswers(ctx, c.voters); err != nil {
		return nil, err
	}
	if err := cmp.Or(ctx.Err(), n.stillReigns(r)); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotNow, err)
	}
	return c, nil
}

// stillReigns returns errReignOver once this server knows that it has lost the
// leadership of r. It may not know it yet: proveReign asks the others.
func (n *Node) stillReigns(r *reign) error {
	if term, ok := n.leads(); !ok || term != r.term {
		return errReignOver
	}
	return nil
}

// proveReign shows that r went on at some moment after the call; so what this
// server knew before it was what the leader knows. Else it returns an error.
func (n *Node) proveReign(ctx context.Context, r *reign) error {
	p, err := n.rounds.join(ctx)
	if err == nil && p.term != r.term {
		err = errReignOver
	}
	return err
}

// answerTime is how long a voter may take to show that it is there.
const answerTime = time.Second

// quorumAnswers returns ErrUnsafe unless a quorum of these voters answers now.
func (n *Node) quorumAnswers(ctx context.Context, voters []serverID) error {
	if len(voters) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var there atomic.Int64
	var asking sync.WaitGroup
	for _, id := range voters {
		asking.Go(func() {
			if id == n.id || n.answers(ctx, id) == nil {
				there.Add(1)
			}
		})
	}
	asking.Wait()
	if t := (tally{voters: len(voters), alive: int(there.Load())}); t.spare() < 0 {
		return fmt.Errorf("%w: of the %d voters afterwards %d answer now, and %d are needed", ErrUnsafe, t.voters, t.alive, t.quorum())
	}
	return nil
}

// answers asks one server for a sign of life.
func (n *Node) answers(ctx context.Context, id serverID) error {
	client, err := n.peers.client(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Terms(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&peerpb.TermRequest{}); err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}
