// Package znode is the tree of one replica: znodes with data, Stat and ACL,
// the operations that change them, and the list of changes each one made. It
// follows ZooKeeper's model wherever a ZooKeeper client can see it.
//
// The package is pure and deterministic: time, transaction id and caller come
// in as arguments, and the same operations give the same tree, results and
// changes on every replica. A Tree is used by one caller at a time; what it
// returns (data, ACL lists, paths) is never changed afterwards and may be read
// without its lock.
//
// [Tree.Apply] and [Tree.Multi] do operations, [Tree.Snapshot] takes an image
// that is written while the tree goes on. DESIGN.md beside the code says why the
// tree is laid out as it is.
package znode
