package znode

import "hash/maphash"

// index finds a node by its parent's number and its name: open addressing in
// slots of 8 bytes, the node's number with 32 bits of its hash beside it, so
// that a probe touches the node itself only when it is almost surely the one.
//
// It is cut into shards that grow by themselves. So no write has to move more
// than a small part of a million entries when a table doubles.
//
// The hash is seeded for each process like that of a Go map, and for the same
// reason: names come from outside, and must not be chosen to collide. Nothing
// that can be seen depends on it.
type index struct {
	seed   maphash.Seed
	shards [shardCount]shard
}

const shardCount = 256

// shard is a table with linear probing. A slot is 0 when empty, else
// hash<<32 | number.
type shard struct {
	slots []uint64
	n     int
}

func (x *index) init() { x.seed = maphash.MakeSeed() }

// hash mixes parent and name. The multiplication is a bijection of the low 32
// bits, so one name under many parents spreads.
func (x *index) hash(parent uint32, name string) uint64 {
	h := maphash.String(x.seed, name) ^ uint64(parent)*0x9e3779b97f4a7c15
	return h ^ h>>29
}

func (x *index) shard(h uint64) *shard { return &x.shards[h>>56] }

// find returns the child of parent with the name, or 0.
func (x *index) find(nodes *slab[node], parent uint32, name string) uint32 {
	h := x.hash(parent, name)
	s := x.shard(h)
	if s.n == 0 {
		return 0
	}
	mask := uint32(len(s.slots) - 1)
	for at := uint32(h) & mask; ; at = (at + 1) & mask {
		slot := s.slots[at]
		if slot == 0 {
			return 0
		}
		if uint32(slot>>32) != uint32(h) {
			continue
		}
		if n := nodes.at(uint32(slot)); n.parent == parent && n.name() == name {
			return uint32(slot)
		}
	}
}

// add puts node i in. It must not be there.
func (x *index) add(parent uint32, name string, i uint32) {
	h := x.hash(parent, name)
	s := x.shard(h)
	if s.n >= len(s.slots)/4*3 {
		s.resize(max(8, 2*len(s.slots)))
	}
	s.put(uint64(uint32(h))<<32 | uint64(i))
	s.n++
}

// remove takes node i out, and moves what was displaced by it back.
func (x *index) remove(parent uint32, name string, i uint32) {
	h := x.hash(parent, name)
	s := x.shard(h)
	want := uint64(uint32(h))<<32 | uint64(i)
	mask := uint32(len(s.slots) - 1)
	at := uint32(h) & mask
	for s.slots[at] != want {
		at = (at + 1) & mask
	}
	s.n--
	for next := at; ; {
		next = (next + 1) & mask
		slot := s.slots[next]
		if slot == 0 {
			break
		}
		// slot may fill the hole if its home is not behind the hole.
		if home := uint32(slot>>32) & mask; (next-home)&mask >= (next-at)&mask {
			s.slots[at] = slot
			at = next
		}
	}
	s.slots[at] = 0
	if len(s.slots) > 8 && s.n < len(s.slots)/8 {
		s.resize(len(s.slots) / 2)
	}
}

// reserve makes room for n entries in all.
func (x *index) reserve(n int) {
	size := 8
	for size/4*3 < n/shardCount+n/shardCount/8 {
		size *= 2
	}
	for i := range x.shards {
		if len(x.shards[i].slots) < size {
			x.shards[i].resize(size)
		}
	}
}

func (s *shard) put(slot uint64) {
	mask := uint32(len(s.slots) - 1)
	at := uint32(slot>>32) & mask
	for s.slots[at] != 0 {
		at = (at + 1) & mask
	}
	s.slots[at] = slot
}

func (s *shard) resize(size int) {
	old := s.slots
	s.slots = make([]uint64, size)
	for _, slot := range old {
		if slot != 0 {
			s.put(slot)
		}
	}
}
