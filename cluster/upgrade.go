package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coordd/coord/cluster/peerpb"
	"github.com/coordd/coord/fsm"
)

// Upgrade is how far a cluster has come in an upgrade. Levels are numbers of
// behaviour: a release that changes what an entry of the log does, or how it is
// written, knows one level more, and does it only where the cluster has been
// raised to that level.
type Upgrade struct {
	Level  uint32 // agreed on; servers that do not know it cannot take part
	Common uint32 // the highest that every member knows
	// Behind names the members that know less than another one, or cannot be asked,
	// with the reason.
	Behind []string
}

// Upgrade asks the leader how far the cluster is. With raise it is then raised to
// the highest level that every member knows, for good: a release that does not
// know it can no longer be gone back to. A member that is not in contact may
// know less than when it was last heard of, so while there is one nothing is
// raised, and the error matches ErrRefused.
//
// While there is no leader it waits until ctx ends.
func (n *Node) Upgrade(ctx context.Context, raise bool) (Upgrade, error) {
	for {
		changed := n.changed.C()
		u, err := n.upgradeOnce(ctx, raise)
		if !errors.Is(err, ErrNotLeader) || ctx.Err() != nil {
			return u, err
		}
		pause(ctx, changed, upgradeRetry)
	}
}

// upgradeRetry is how long to wait for the end of an election.
const upgradeRetry = 50 * time.Millisecond

func (n *Node) upgradeOnce(ctx context.Context, raise bool) (Upgrade, error) {
	leader, _, ok := n.leader()
	switch {
	case !ok:
		return Upgrade{}, ErrNotLeader
	case leader == n.id:
		return n.upgradeHere(ctx, raise)
	}
	client, err := n.peers.client(leader)
	if err != nil {
		return Upgrade{}, fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	rep, err := client.Upgrade(ctx, &peerpb.UpgradeRequest{Raise: raise})
	if err != nil { // to raise it again changes nothing
		return Upgrade{}, fmt.Errorf("%w: ask the leader %s: %w", ErrNotLeader, leader.name(), err)
	}
	u := Upgrade{rep.GetLevel(), rep.GetCommon(), rep.GetBehind()}
	switch refused := rep.GetRefused(); {
	case refused == "":
		return u, nil
	case strings.HasPrefix(refused, ErrNotLeader.Error()):
		return u, ErrNotLeader
	default:
		return u, fmt.Errorf("%w: %s", ErrRefused, strings.TrimPrefix(refused, ErrRefused.Error()+": "))
	}
}

// Upgrade implements peerpb.PeerServer.
func (s *peerService) Upgrade(ctx context.Context, q *peerpb.UpgradeRequest) (*peerpb.UpgradeReply, error) {
	u, err := s.node.upgradeHere(ctx, q.GetRaise())
	rep := &peerpb.UpgradeReply{Level: u.Level, Common: u.Common, Behind: u.Behind}
	if err != nil {
		rep.Refused = err.Error()
	}
	return rep, nil
}

// upgradeHere is the leader's side.
func (n *Node) upgradeHere(ctx context.Context, raise bool) (Upgrade, error) {
	r := n.reign.Load()
	if r == nil {
		return Upgrade{}, ErrNotLeader
	}
	u, absent := n.levels()
	switch {
	case !raise || u.Common <= u.Level:
		return u, nil
	case absent > 0:
		return u, fmt.Errorf("%w: %d of the members cannot be asked what they know: %s", ErrRefused, absent, strings.Join(u.Behind, ", "))
	}
	if err := n.raiseLevel(ctx, r, u.Common); err != nil {
		return u, err
	}
	u.Level = n.machine.FeatureLevel()
	return u, nil
}

// levels looks at what every member knows, voting or not. absent counts those
// that are not in contact.
func (n *Node) levels() (u Upgrade, absent int) {
	u = Upgrade{Level: n.machine.FeatureLevel(), Common: n.featureLevel()}
	known := map[serverID]uint32{n.id: n.featureLevel()}
	newest := n.featureLevel()
	for _, s := range n.members() {
		id := serverID(s.ID)
		state, _, ok := n.stateOfServer(id)
		if !n.inContact(id) {
			absent++
			u.Behind = append(u.Behind, id.name()+" is not in contact")
		}
		if ok {
			known[id] = max(state.GetFeatureLevel(), 1) // the first release knew 1
			u.Common, newest = min(u.Common, known[id]), max(newest, known[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		if known[id] < newest {
			u.Behind = append(u.Behind, fmt.Sprintf("%s knows level %d", id.name(), known[id]))
		}
	}
	return u, absent
}

// raiseLevel proposes the level and waits until it is applied here.
func (n *Node) raiseLevel(ctx context.Context, r *reign, level uint32) error {
	done := make(chan error, 1)
	r.batch.propose(&fsm.Command{Kind: fsm.CmdFeature, Feature: level, Term: r.term}, func(err error) { done <- err })
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("%w: raise the feature level to %d: %w", ErrNotLeader, level, err)
		}
	case <-ctx.Done():
		return fmt.Errorf("raise the feature level to %d, outcome unknown: %w", level, ctx.Err())
	}
	if n.machine.FeatureLevel() < level {
		return ErrNotLeader
	}
	n.log.Info("the cluster was raised", "event", "feature_level", "level", level)
	return nil
}

// checkLevel refuses a server that does not know what the cluster has agreed on.
func (n *Node) checkLevel(name string, level uint32) error {
	level = max(level, 1)
	if agreed := n.machine.FeatureLevel(); level < agreed {
		return fmt.Errorf("the cluster has been raised to feature level %d, and %s knows %d: it needs a newer release", agreed, name, level)
	}
	return nil
}
