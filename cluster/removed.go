package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/cluster/peerpb"
)

// removedFile, in the data directory, says that this incarnation was taken out
// of its cluster. It keeps a later start from asking for votes again.
const removedFile = "REMOVED"

// ErrRemoved is returned by Open and Run of a server that was taken out of its
// cluster. It comes as a *RemovedError.
var ErrRemoved = errors.New("removed from the cluster")

// RemovedError says that a server was taken out of its cluster, by an operator
// or because it was dead for too long. It matches ErrRemoved. The same data can
// never be a member again: others count on it that this server, with what it may
// have promised, is gone.
type RemovedError struct {
	Server  string    `json:"server"`  // name~incarnation
	Cluster string    `json:"cluster"` // id
	By      string    `json:"by"`      // the leader that said so
	At      time.Time `json:"at"`      // when it was heard, not when it was done
	Dir     string    `json:"-"`
}

func (e *RemovedError) Error() string {
	return fmt.Sprintf("%s was %v %s (the leader %s said so at %s); wipe %s to let it join again as a new server",
		e.Server, ErrRemoved, e.Cluster, e.By, e.At.UTC().Format(time.RFC3339), e.Dir)
}

// Is makes errors.Is(err, ErrRemoved) true.
func (e *RemovedError) Is(target error) bool { return target == ErrRemoved }

// readRemoved returns the *RemovedError of a data directory that has one.
func readRemoved(dir string) error {
	path := filepath.Join(dir, removedFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	e := &RemovedError{Dir: dir}
	if err := json.Unmarshal(b, e); err != nil {
		return fmt.Errorf("%s: this server was %w (%w); wipe %s to let it join again as a new server", path, ErrRemoved, err, dir)
	}
	return e
}

// evicted ends Run: the leader said that this server was removed.
func (n *Node) evicted(by serverID) {
	e := &RemovedError{
		Server: string(n.id), Cluster: n.stores.cluster(), By: string(by), At: n.cfg.Clock.Wall(), Dir: n.cfg.DataDir,
	}
	b, err := json.Marshal(e)
	if err == nil {
		err = writeFileDurably(filepath.Join(n.cfg.DataDir, removedFile), append(b, '\n'))
	}
	if err != nil { // the next start is told again
		n.log.Error("cannot write down that this server was removed", "err", err)
	}
	n.log.Error("this server was removed from the cluster", "event", "removed", "by", string(by))
	select {
	case n.removed <- e:
	default: // it was told before
	}
}

// hasLeft says, at the leader of r, that a server which belonged to this cluster
// is not a member any more, and never will be: a server takes the id of the
// cluster for its own only after the membership that has it was committed, and
// who has that id is never taken in again. An error says that this cannot be told now.
func (n *Node) hasLeft(ctx context.Context, r *reign, id serverID) (bool, error) {
	left := false
	// Between changes the membership of a leader is committed, as is all else that
	// is before the NewEpoch of r.
	err := n.changeMembership(ctx, r, func(servers []raft.Server) (*change, error) {
		left = !contains(servers, id)
		return nil, nil
	})
	if err != nil || !left {
		return false, err
	}
	if err := n.proveReign(ctx, r); err != nil { // a leader of the past knows an old membership
		return false, err
	}
	return true, nil
}

// confirm asks whether this server, which has no leader, still is a member, and
// says where it is.
func (f *formation) confirm(ctx context.Context, seen []sighted) {
	rep, _ := f.ask(ctx, seen)
	if rep.GetRemoved() {
		f.node.evicted(serverID(rep.GetLeader()))
	}
}

// ask sends a request to join to the peers that have a cluster, then to where
// they point. It returns the answer that decides, nil with the refusals if none
// does.
func (f *formation) ask(ctx context.Context, seen []sighted) (*peerpb.JoinReply, []string) {
	var refusals []string
	asked := map[string]bool{}
	var todo []string
	for _, s := range seen {
		if s.reply.GetClusterId() != "" {
			todo = append(todo, s.peer.Address)
		}
	}
	for ; len(todo) > 0 && len(asked) < maxPeers; todo = todo[1:] {
		address := todo[0]
		if asked[address] {
			continue
		}
		asked[address] = true
		rep, err := f.askToJoin(ctx, address)
		switch {
		case err != nil:
			refusals = append(refusals, fmt.Sprintf("%s: %s", address, brief(err)))
		case rep.GetRefused() == "":
			return rep, nil
		default:
			refusals = append(refusals, fmt.Sprintf("%s: %s", address, rep.GetRefused()))
			if rep.GetLeaderAddress() != "" {
				todo = append(todo, rep.GetLeaderAddress())
			}
		}
	}
	return nil, refusals
}
