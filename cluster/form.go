package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/cluster/peerpb"
)

const (
	// formTick is how often a server without a cluster looks for one.
	formTick = 200 * time.Millisecond
	// discoverTimeout bounds one question to one peer.
	discoverTimeout = time.Second
	// lostTick is how often a member without a leader says where it is.
	lostTick = 2 * time.Second
)

// formation brings a server that has no cluster into one: into the one it finds
// with the listed peers, or, if it is the first of the list, into a new one. A
// server that has been a member needs nobody to come back.
type formation struct {
	node *Node

	mu      sync.Mutex
	wanted  int    // operators who ask here, and wait
	waiting string // for what

	kept bool // it is written down that the cluster is formed; used by run only
}

func (f *formation) reason() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting
}

func (f *formation) wait(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	f.mu.Lock()
	changed := f.waiting != text
	f.waiting = text
	f.mu.Unlock()
	if changed && text != "" {
		f.node.log.Info("not formed: "+text, "event", "not_formed")
	}
}

func (f *formation) isWanted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wanted > 0
}

// want counts an operator who asks, or with -1 one who does not any more.
func (f *formation) want(more int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanted += more
}

// Form allows the listed peers to form a new cluster, as cluster.bootstrap: auto
// does by itself, and waits until it is formed; it may be called at any of them.
// It returns the cluster id; a *NotFormedError that says what is missing when
// ctx ends first; and ErrRefused if there is a cluster already. When ctx ends the
// wish ends with it: nothing is formed later because somebody once asked. A first
// server that has begun the cluster by then takes in the others all the same.
func (n *Node) Form(ctx context.Context) (clusterID string, err error) {
	if n.Formed() == nil {
		return n.stores.cluster(), fmt.Errorf("%w: the cluster is formed, its id is %s", ErrRefused, n.stores.cluster())
	}
	n.form.want(1)
	defer n.form.want(-1)
	for {
		changed := n.changed.C()
		err := n.Formed()
		if err == nil {
			return n.stores.cluster(), nil
		}
		if awaitChange(ctx, changed); ctx.Err() != nil {
			return "", err
		}
	}
}

// run works until ctx ends.
func (f *formation) run(ctx context.Context) {
	for ctx.Err() == nil {
		f.keepFormed()
		if f.node.isMember(f.node.id) {
			f.wait("")
			if _, _, ok := f.node.leader(); !ok {
				// Says where we are to those who do not list us, or elsewhere, and
				// asks whether we were removed while nobody could tell us.
				f.confirm(ctx, f.discover(ctx))
			}
			pause(ctx, nil, lostTick)
			continue
		}
		f.step(ctx)
		pause(ctx, nil, formTick)
	}
}

// sighted is what a listed peer said, or why it said nothing.
type sighted struct {
	peer  Peer
	reply *peerpb.DiscoverReply
	err   error
}

// whereabouts are the other listed servers, and the members where they were found
// last, if that is elsewhere: the list of a server that was away may be old.
func (n *Node) whereabouts() []Peer {
	out := slices.DeleteFunc(n.cfg.servers(), func(p Peer) bool { return p.Name == n.cfg.Name })
	for _, s := range n.members() {
		id := serverID(s.ID)
		at, ok := n.addresses.of(id)
		if p := (Peer{id.name(), at}); ok && id != n.id && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// discover asks all other servers that are known at once.
func (f *formation) discover(ctx context.Context) []sighted {
	n := f.node
	self, _ := n.cfg.Self()
	q := &peerpb.DiscoverRequest{
		ClusterName: n.cfg.ClusterName, Name: n.cfg.Name, Id: string(n.id), Peers: n.cfg.peerList(),
		Address: self.Address, ClusterId: n.stores.cluster(),
	}
	var out []sighted
	for _, p := range n.whereabouts() {
		out = append(out, sighted{peer: p})
	}
	var wg sync.WaitGroup
	for i := range out {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
			defer cancel()
			out[i].err = n.peers.guest(out[i].peer.Address, func(c peerpb.PeerClient) (err error) {
				out[i].reply, err = c.Discover(ctx, q)
				return err
			})
		})
	}
	wg.Wait()
	return out
}

// step looks around once and does what can be done.
func (f *formation) step(ctx context.Context) {
	seen := f.discover(ctx)
	cluster, reason := f.existing(seen)
	if reason != "" {
		f.wait("%s", reason)
		return
	}
	if cluster != "" {
		f.join(ctx, seen)
		return
	}
	if err := f.bootstrap(seen); err != nil {
		f.wait("%v", err)
	}
}

// existing returns the id of the cluster that peers belong to, empty if they
// belong to none; or the reason why that cannot be told.
func (f *formation) existing(seen []sighted) (id, reason string) {
	own := f.node.stores.cluster()
	for _, s := range seen {
		theirs := s.reply.GetClusterId()
		switch {
		case theirs == "":
		case own != "" && theirs != own:
			return "", fmt.Sprintf("%s belongs to cluster %s, this server to %s", s.peer.Name, theirs, own)
		case id != "" && theirs != id:
			return "", fmt.Sprintf("%s belongs to cluster %s, another peer to %s", s.peer.Name, theirs, id)
		default:
			id = theirs
		}
	}
	return id, ""
}

// join asks to be taken in.
func (f *formation) join(ctx context.Context, seen []sighted) {
	rep, refusals := f.ask(ctx, seen)
	switch {
	case rep == nil:
		f.wait("waiting to be taken in (%s)", strings.Join(refusals, "; "))
	case rep.GetRemoved():
		f.node.evicted(serverID(rep.GetLeader()))
	default:
		f.joined(rep.GetClusterId())
	}
}

func (f *formation) askToJoin(ctx context.Context, address string) (rep *peerpb.JoinReply, err error) {
	n := f.node
	self, _ := n.cfg.Self()
	ctx, cancel := context.WithTimeout(ctx, memberChangeTimeout+discoverTimeout)
	defer cancel()
	err = n.peers.guest(address, func(c peerpb.PeerClient) (err error) {
		rep, err = c.Join(ctx, &peerpb.JoinRequest{
			Name: n.cfg.Name, Id: string(n.id), Address: self.Address, ClusterName: n.cfg.ClusterName,
			Observer: n.cfg.isObserver(n.cfg.Name), FeatureLevel: n.featureLevel(),
		})
		return err
	})
	return rep, err
}

// joined makes the cluster ours. From then on its Raft messages are let in, and
// the leader's log makes this server a member.
func (f *formation) joined(cluster string) {
	if err := f.node.stores.adoptCluster(cluster); err != nil {
		f.wait("cannot join cluster %s: %v", clip(cluster), err)
		return
	}
	f.wait("waiting for the log of cluster %s", cluster)
	f.node.changed.flash()
}

// bootstrap forms a new cluster with this server alone, if everything allows it;
// else it says what it waits for.
func (f *formation) bootstrap(seen []sighted) error {
	n := f.node
	if n.cfg.isObserver(n.cfg.Name) {
		return errors.New("waiting for the cluster to be formed by its voters")
	}
	if err := mayBootstrap(n.cfg, seen); err != nil {
		return err
	}
	if first := n.cfg.Peers[0].Name; first != n.cfg.Name {
		return fmt.Errorf("waiting for %s, the first of the list, to form the cluster", first)
	}
	wanted := n.cfg.Bootstrap == BootstrapAuto || f.isWanted() ||
		slices.ContainsFunc(seen, func(s sighted) bool { return s.reply.GetFormWanted() })
	if !wanted {
		return errors.New("waiting for an operator to form the cluster: coordctl cluster init")
	}
	if n.stores.cluster() == "" { // else a start before this one came as far as here
		if err := n.stores.adoptCluster(newClusterID()); err != nil {
			return fmt.Errorf("cannot form the cluster: %w", err)
		}
	}
	if err := n.stores.forgetUnfinishedBootstrap(); err != nil {
		return fmt.Errorf("cannot form the cluster: %w", err)
	}
	alone := raft.Configuration{Servers: []raft.Server{{
		Suffrage: raft.Voter, ID: raft.ServerID(n.id), Address: raft.ServerAddress(n.id),
	}}}
	if err := n.raft.Load().BootstrapCluster(alone).Error(); err != nil {
		return fmt.Errorf("cannot form the cluster: %w", err)
	}
	n.log.Info("formed a new cluster", "event", "cluster_formed", "cluster", n.stores.cluster())
	n.changed.flash()
	return nil
}

// mayBootstrap checks that there is no other cluster and cannot be one: every
// listed peer answers, has no data, and has the same list, so that all name the
// same first one.
func mayBootstrap(cfg Config, seen []sighted) error {
	seen = slices.DeleteFunc(slices.Clone(seen), func(s sighted) bool { return cfg.isObserver(s.peer.Name) })
	var silent []string
	for _, s := range seen {
		if s.err != nil {
			silent = append(silent, fmt.Sprintf("%s (no answer at %s: %v)", s.peer.Name, s.peer.Address, brief(s.err)))
		}
	}
	if len(silent) > 0 {
		return fmt.Errorf("waiting for %s", strings.Join(silent, ", "))
	}
	for _, s := range seen {
		r := s.reply
		switch {
		case r.GetName() != s.peer.Name:
			return fmt.Errorf("waiting for %s: the server at %s is called %s", s.peer.Name, s.peer.Address, clip(r.GetName()))
		case r.GetClusterName() != cfg.ClusterName:
			return fmt.Errorf("waiting for %s: its cluster is called %s, not %s", s.peer.Name, clip(r.GetClusterName()), cfg.ClusterName)
		case r.GetHasData() || r.GetClusterId() != "":
			return fmt.Errorf("waiting for %s: it has data of another cluster", s.peer.Name)
		case !slices.Equal(r.GetPeers(), cfg.peerList()):
			return fmt.Errorf("waiting for %s: its list of peers is another one: %s", s.peer.Name, strings.Join(r.GetPeers(), ", "))
		}
	}
	return nil
}

// brief is the part of a gRPC error that says something.
func brief(err error) string {
	s := err.Error()
	if i := strings.LastIndex(s, "desc = "); i >= 0 {
		s = s[i+len("desc = "):]
	}
	return strings.Trim(strings.TrimPrefix(s, "connection error: desc = "), `"`)
}

// Discover implements peerpb.PeerServer.
func (s *peerService) Discover(ctx context.Context, q *peerpb.DiscoverRequest) (*peerpb.DiscoverReply, error) {
	n := s.node
	own := n.stores.cluster()
	// Only a server of this cluster may say where it is, and only for itself.
	if caller := callerID(ctx); own != "" && q.GetClusterId() == own && q.GetId() == string(caller) && q.GetName() == caller.name() {
		n.learnAddress(caller, clip(q.GetAddress()))
	}
	rep := &peerpb.DiscoverReply{
		Name: n.cfg.Name, Id: string(n.id), ClusterName: n.cfg.ClusterName, ClusterId: own,
		HasData: n.hasData(), Peers: n.cfg.peerList(), AutoBootstrap: n.cfg.Bootstrap == BootstrapAuto,
		Version: n.cfg.Info().Version, FormWanted: n.form.isWanted(),
	}
	if id, term, ok := n.leader(); ok {
		rep.Leader, rep.Term = string(id), term
	}
	return rep, nil
}

// hasData says that there is anything in the log or the state.
func (n *Node) hasData() bool {
	r := n.raft.Load()
	return r != nil && r.LastIndex() > 0 || n.machine.Index() > 0
}
