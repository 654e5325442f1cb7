package fsm

import "github.com/coordd/coord/zxid"

// digestVersion says what the digest is made of. Servers of different versions
// do not compare theirs.
const digestVersion = 1

// Digest returns 64 bits over the whole state, with the log index and the
// transaction it stands at: replicas at one index have one digest. It waits for
// the end of the entry being applied, so that it never shows a part of one, and
// costs as much as was edited since the last call.
func (m *Machine) Digest() (digest, index uint64, z zxid.ID) {
	m.entry.Lock()
	defer m.entry.Unlock()
	m.mu.Lock() // adding up changes the table's bookkeeping
	defer m.mu.Unlock()
	m.fresh = 0
	return digestOf(&m.state), m.state.Index, m.state.Zxid
}

// Digest is that of a state that is not a machine's, such as one read from a
// file.
func (v *View) Digest() uint64 { return digestOf(v) }

// digestOf leaves out index and term of the last entry: they move with entries
// that change nothing, and say nothing about the state.
func digestOf(v *View) uint64 { return digestWith(v, v.Tree.Digest(), v.Sessions.Digest()) }

// digestWith is digestOf with the digests of the two tables given.
func digestWith(v *View, tree, table uint64) uint64 {
	h := hash(0).uint64(digestVersion).uint64(tree).uint64(table)
	h = h.uint64(uint64(v.Zxid)).uint64(v.EpochTerm).uint64(uint64(v.Clock))
	h = h.string(v.ClusterID).uint64(uint64(v.FeatureLevel))
	h = v.restoring.digest(v.LastRestore.digest(h))
	return uint64(h)
}
