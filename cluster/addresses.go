package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"
)

// errNoAddress is returned for a server that is neither listed nor has said
// where it is.
var errNoAddress = errors.New("no address is known")

const (
	// maxLearned bounds the addresses that are not in the configuration.
	maxLearned = 2 * maxPeers
	// addressFile, in the data directory, has what servers have said of where
	// they are, for a start at which they cannot say it.
	addressFile = "addresses"
)

// addresses finds the peer port of a server. There may be two answers: what the
// operator's list says of its name, and what the server itself has said. A server
// that moved is right about itself while the lists of the others are old, and a
// list that was just changed is right while what was said before is old. So the
// one that worked last is tried, and the other one after each failure: whoever
// answers, the handshake makes sure that it is the server that is meant.
//
// It is safe for concurrent use.
type addresses struct {
	listed map[string]string // by name
	path   string            // of addressFile

	mu      sync.Mutex // guards what follows
	learned map[serverID]saidAddress
	turned  map[serverID]bool // the listed address is to be tried before the learned one

	saving sync.Mutex // one save at a time, so that the last one wins; never under mu
}

// saidAddress is where a server said it is.
type saidAddress struct {
	Address string `json:"address"`
	// Listed is what the list said of its name at that time. If the list says
	// something else now, the operator knows more.
	Listed string `json:"listed,omitempty"`
}

func newAddresses(peers []Peer, path string) *addresses {
	a := &addresses{
		listed: make(map[string]string), path: path,
		learned: make(map[serverID]saidAddress), turned: make(map[serverID]bool),
	}
	for _, p := range peers {
		a.listed[p.Name] = p.Address
	}
	return a
}

// load reads what an earlier start was told. A missing file is none.
func (a *addresses) load() error {
	b, err := os.ReadFile(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var said map[serverID]saidAddress
	if err := json.Unmarshal(b, &said); err != nil {
		return fmt.Errorf("%s: %w", a.path, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, s := range said {
		if _, err := parseServerID(string(id)); err == nil && len(a.learned) < maxLearned {
			a.learned[id], a.turned[id] = s, s.Listed != a.listed[id.name()]
		}
	}
	return nil
}

// learn notes where a server says it is, and keeps it for the next start. When it
// knows too many, it forgets the others: they say it again. The error is that of
// the disk; what was said is known nevertheless.
func (a *addresses) learn(id serverID, address string) error {
	if id == "" || address == "" || !a.note(id, address) {
		return nil
	}
	return a.save()
}

func (a *addresses) note(id serverID, address string) (changed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	listed := a.listed[id.name()]
	old, known := a.learned[id]
	switch {
	case known && old.Address == address:
		return false
	case address == listed:
		delete(a.learned, id)
		delete(a.turned, id)
		return known
	case !known && len(a.learned) >= maxLearned:
		clear(a.learned)
		clear(a.turned)
	}
	a.learned[id] = saidAddress{Address: address, Listed: listed}
	delete(a.turned, id) // it has just said so itself
	return true
}

func (a *addresses) save() error {
	a.saving.Lock()
	defer a.saving.Unlock()
	a.mu.Lock()
	said := maps.Clone(a.learned)
	a.mu.Unlock()
	b, err := json.Marshal(said) // in the order of the ids
	if err != nil {
		return err
	}
	return writeFileDurably(a.path, append(b, '\n'))
}

// of is where a server is looked for next.
func (a *addresses) of(id serverID) (string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	said, known := a.learned[id]
	listed, inList := a.listed[id.name()]
	if known && (!inList || !a.turned[id]) {
		return said.Address, true
	}
	return listed, inList
}

// tried notes how dialling a server at an address ended: after a failure the
// other address is next.
func (a *addresses) tried(id serverID, address string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	said, known := a.learned[id]
	if !known {
		return
	}
	a.turned[id] = (address == said.Address) == (err != nil)
}

// forget drops what was said by servers that keep does not want.
func (a *addresses) forget(keep func(serverID) bool) error {
	a.mu.Lock()
	before := len(a.learned)
	maps.DeleteFunc(a.learned, func(id serverID, _ saidAddress) bool { return !keep(id) })
	maps.DeleteFunc(a.turned, func(id serverID, _ bool) bool { return !keep(id) })
	changed := len(a.learned) != before
	a.mu.Unlock()
	if !changed {
		return nil
	}
	return a.save()
}

// resolve is what the peer port dials by.
func (a *addresses) resolve(id serverID) (string, error) {
	if at, ok := a.of(id); ok {
		return at, nil
	}
	return "", fmt.Errorf("%w: %s is not in cluster.peers", errNoAddress, id.name())
}

// learnAddress notes where a server says it is.
func (n *Node) learnAddress(id serverID, address string) {
	if id == n.id {
		return
	}
	if err := n.addresses.learn(id, address); err != nil {
		n.log.Warn("the address of a server is not kept for the next start", "peer", string(id), "err", err)
	}
}
