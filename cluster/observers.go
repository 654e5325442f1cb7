package cluster

import "slices"

// Self is this server's entry in Peers or Observers.
func (c Config) Self() (Peer, bool) {
	if p, ok := c.peer(c.Name); ok {
		return p, true
	}
	i := slices.IndexFunc(c.Observers, func(p Peer) bool { return p.Name == c.Name })
	if i < 0 {
		return Peer{}, false
	}
	return c.Observers[i], true
}

// servers are all listed servers: those that may vote, then the observers.
func (c Config) servers() []Peer { return slices.Concat(c.Peers, c.Observers) }

// isObserver says that a server is listed as one that never votes.
func (c Config) isObserver(name string) bool {
	return slices.ContainsFunc(c.Observers, func(p Peer) bool { return p.Name == name })
}
