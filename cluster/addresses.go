package cluster

import (
	"errors"
	"fmt"
	"sync"
)

// errNoAddress is returned for a server that is neither listed nor has said
// where it is.
var errNoAddress = errors.New("no address is known")

// maxLearned bounds the addresses that are not in the configuration.
const maxLearned = maxPeers

// addresses finds the peer port of a server by its name: by the peer list of
// the operator, and for a name that is not in it, by what that server said when
// it joined. It is safe for concurrent use.
type addresses struct {
	listed map[string]string

	mu      sync.Mutex
	learned map[string]string
}

func newAddresses(peers []Peer) *addresses {
	a := &addresses{listed: make(map[string]string), learned: make(map[string]string)}
	for _, p := range peers {
		a.listed[p.Name] = p.Address
	}
	return a
}

// learn notes where a server that is not listed says it is. When it knows too
// many, it forgets the others: they say it again.
func (a *addresses) learn(name, address string) {
	if _, ok := a.listed[name]; ok || name == "" || address == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.learned[name]; !ok && len(a.learned) >= maxLearned {
		clear(a.learned)
	}
	a.learned[name] = address
}

func (a *addresses) of(name string) (string, bool) {
	if at, ok := a.listed[name]; ok {
		return at, true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok := a.learned[name]
	return at, ok
}

// resolve is what the peer port dials by.
func (a *addresses) resolve(id serverID) (string, error) {
	if at, ok := a.of(id.name()); ok {
		return at, nil
	}
	return "", fmt.Errorf("%w: %s is not in cluster.peers", errNoAddress, id.name())
}
