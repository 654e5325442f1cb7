package zkimport

import "github.com/coordd/coord/znode"

// creates is how many children a znode of ZooKeeper ever had, which is the number
// that its next sequential child gets. A Stat does not show it, but a cversion
// that is made of it: twice the creates less the children there are, in 32 bits.
// Creates have 31: a counter that has gone on to negative numbers cannot be told
// from a small one.
func creates(s *znode.Stat) int64 {
	return int64((uint32(s.Cversion)+uint32(s.NumChildren))/2) & (1<<31 - 1)
}

// createsHere is the same of a znode of the cluster, where nothing is cut off.
func createsHere(s *znode.Stat) int64 { return (s.Cversion + int64(s.NumChildren)) / 2 }
