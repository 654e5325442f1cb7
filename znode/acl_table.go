package znode

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// aclTable keeps each ACL list once; nodes hold its number. Most nodes of most
// trees share one list.
//
// Invariant: refs[i] is the number of nodes with list i, and byKey has exactly
// the lists with refs > 0.
type aclTable struct {
	lists slab[aclList]
	refs  []uint32
	byKey map[string]uint32
	last  uint32 // the list asked for last
	key   []byte // scratch
}

// aclList is a list that is never changed once it is stored.
type aclList struct {
	entries []ACL
	shared  *[]ACL // the same, for who keeps it longer than the table does
	key     string
	digest  uint64
}

// intern returns the number of the list, with one more reference to it. It
// returns 0 if the table is full. It keeps nothing of list.
func (t *aclTable) intern(list []ACL) uint32 {
	if t.last != 0 && slices.Equal(t.lists.at(t.last).entries, list) {
		t.refs[t.last]++
		return t.last
	}
	t.key = appendACLKey(t.key[:0], list)
	i, ok := t.byKey[string(t.key)]
	if !ok {
		if i = t.add(list, string(t.key)); i == 0 {
			return 0
		}
	}
	t.refs[i]++
	t.last = i
	return i
}

func (t *aclTable) add(list []ACL, key string) uint32 {
	i := t.lists.alloc()
	if i == 0 {
		return 0
	}
	entries := slices.Clone(list)
	for k := range entries {
		entries[k].Scheme = strings.Clone(entries[k].Scheme)
		entries[k].ID = strings.Clone(entries[k].ID)
	}
	*t.lists.own(i) = aclList{entries: entries, shared: &entries, key: key, digest: xxhash.Sum64String(key)}
	for int(i) >= len(t.refs) {
		t.refs = append(t.refs, 0)
	}
	if t.byKey == nil {
		t.byKey = make(map[string]uint32)
	}
	t.byKey[key] = i
	return i
}

// release gives back one reference to list i.
func (t *aclTable) release(i uint32) {
	t.refs[i]--
	if t.refs[i] > 0 {
		return
	}
	delete(t.byKey, t.lists.at(i).key)
	t.lists.release(i)
	if t.last == i {
		t.last = 0
	}
}

func (t *aclTable) list(i uint32) []ACL { return t.lists.at(i).entries }

// appendACLKey writes the list so that equal bytes mean equal lists.
func appendACLKey(b []byte, list []ACL) []byte {
	for i := range list {
		a := &list[i]
		b = binary.LittleEndian.AppendUint32(b, a.Perms)
		b = binary.AppendUvarint(b, uint64(len(a.Scheme)))
		b = append(b, a.Scheme...)
		b = binary.AppendUvarint(b, uint64(len(a.ID)))
		b = append(b, a.ID...)
	}
	return b
}
