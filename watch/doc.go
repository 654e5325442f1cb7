// Package watch knows who waits for which change, and which events a change
// gives. It is local to one server and never replicated.
//
// [Table] holds the watches; [Table.Fire] turns the changes of one transaction
// into events. [History] keeps the latest changes, so that a client that comes
// back gets the events it has missed, exactly as they were sent live, or is
// told that they are no longer known. [Match] is the rule both go by.
//
// The kinds and their order are ZooKeeper's, with what a client of our own
// protocol sees beyond it: watch ids, changes of ACLs, and a mark on the last
// event of each transaction.
//
//	change of N with parent P | own watch on N | child watch on N | child watch on P
//	created                   | Created        |                  | Children
//	data changed              | Changed        |                  |
//	deleted                   | Deleted        | Deleted          | Children
//	ACL changed               | ACLChanged *   |                  |
//
// An own watch is OneShotData, OneShotExists, Node or Persistent; a child watch
// is OneShotChildren, Children or Persistent, which is both. A Recursive watch
// is an own watch on N and on everything below it, and never gets Children.
// (*) Not for one-shot watches, nor for ZooKeeper connections.
// N's events come before those of P.
//
// Nothing here is safe for concurrent use: the caller locks.
package watch
