package cluster

import (
	"maps"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coordd/coord/cluster/peerpb"
)

// contact is the last report of a server.
type contact struct {
	state *peerpb.ServerState // immutable
	at    time.Duration       // on the node's clock
}

// contacts is what this server knows of the others from their reports. Only the
// leader gets reports; what is old says so itself. It is safe for concurrent
// use.
//
// Bound: one for each incarnation that was a member; forget drops others.
type contacts struct {
	mu sync.Mutex
	by map[serverID]contact
	// trouble is why a server could not be reached when it was dialled last.
	trouble map[serverID]string
}

func (c *contacts) note(id serverID, s *peerpb.ServerState, at time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = make(map[serverID]contact)
	}
	c.by[id] = contact{s, at}
}

func (c *contacts) of(id serverID) (contact, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x, ok := c.by[id]
	return x, ok
}

func (c *contacts) forget(keep func(serverID) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.by, func(id serverID, _ contact) bool { return !keep(id) })
	maps.DeleteFunc(c.trouble, func(id serverID, _ string) bool { return !keep(id) })
}

// dialled notes how dialling a server ended.
func (c *contacts) dialled(id serverID, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		delete(c.trouble, id)
	case c.trouble == nil:
		c.trouble = map[serverID]string{id: brief(err)}
	default:
		c.trouble[id] = brief(err)
	}
}

// troubleWith is why a server could not be reached when it was dialled last, ""
// if it could.
func (c *contacts) troubleWith(id serverID) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trouble[id]
}

// dialed hears how dialling a server at an address ended.
func (n *Node) dialed(to serverID, address string, err error) {
	n.addresses.tried(to, address, err)
	n.contacts.dialled(to, err)
}

// contactTimeout is how long a server may be silent and still be in contact.
func (n *Node) contactTimeout() time.Duration {
	return max(time.Second, 4*n.cfg.reportInterval(), 3*n.cfg.Election)
}

// inContact says whether a server reported lately. The own server always does.
func (n *Node) inContact(id serverID) bool {
	if id == n.id {
		return true
	}
	c, ok := n.contacts.of(id)
	return ok && n.now()-c.at < n.contactTimeout()
}

// selfState is how this server is.
func (n *Node) selfState() *peerpb.ServerState {
	info := n.cfg.Info()
	self, _ := n.cfg.Self()
	return &peerpb.ServerState{
		Disk: diskOut(n.DiskUse()),
		Name: n.cfg.Name, Id: string(n.id), PeerAddress: self.Address,
		GrpcAddress: info.GRPCAddress, HttpAddress: info.HTTPAddress, ZookeeperAddress: info.ZooKeeperAddress,
		Ready: info.Ready, Version: info.Version, Detail: info.Detail, Sessions: info.Sessions,
		AppliedIndex: n.machine.Index(), UptimeMs: (n.now() - n.born).Milliseconds(),
		DiskLow: n.disk.isLow(), FeatureLevel: n.featureLevel(),
		Observer: n.cfg.isObserver(n.cfg.Name), RoleSinceMs: n.roles.held(n.ownRole(), n.now()).Milliseconds(),
	}
}

// stateOfServer is the last known state of a server, and how long ago that was.
func (n *Node) stateOfServer(id serverID) (s *peerpb.ServerState, ago time.Duration, ok bool) {
	if id == n.id {
		return n.selfState(), 0, true
	}
	c, ok := n.contacts.of(id)
	if !ok {
		return nil, 0, false
	}
	return proto.Clone(c.state).(*peerpb.ServerState), n.now() - c.at, true
}
